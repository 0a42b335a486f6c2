"""Public: volume drivers with one fault each, for plugin authors to study."""
