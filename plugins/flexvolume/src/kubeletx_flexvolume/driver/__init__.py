"""The executable driver kubeletx.io/storage (`program`), and its installation (`install`)."""
