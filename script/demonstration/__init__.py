"""The demo behind script/demo."""
