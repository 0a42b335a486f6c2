"""Mirror pods: what the API server shows of static pods."""
