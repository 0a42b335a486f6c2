"""Pure rules about domains: their XML, identity, state and size."""
