"""SDK for applications that serve sessions on a node of kubeletx or Fornax."""
