"""The executable driver kubeletx.io/storage (`program`)."""
