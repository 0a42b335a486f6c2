"""Connection to FornaxCores: registration, reports with revisions, and the pods and sessions of a core."""
