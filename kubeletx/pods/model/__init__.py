"""What is known and wanted of one pod, as frozen values, and small rules over them. Pure."""
