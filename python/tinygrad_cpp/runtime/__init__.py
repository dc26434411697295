"""Devices by module, as tinygrad names them."""
