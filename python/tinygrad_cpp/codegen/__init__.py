"""What turns kernels into code."""
