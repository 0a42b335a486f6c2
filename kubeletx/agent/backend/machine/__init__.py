"""Commands on virtual machines (``kubeletx vm``), as the admin socket calls them."""
