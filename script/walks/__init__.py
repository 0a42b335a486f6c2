"""The walks of newcomers behind script/newcomers."""
