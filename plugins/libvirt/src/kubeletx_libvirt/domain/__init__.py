"""Pure rules about domains: what their XML says, who they are, how they stand, how big they are."""
