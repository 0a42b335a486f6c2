"""Application sessions on instances: a local service for applications, certificates, metadata, life of a session."""
