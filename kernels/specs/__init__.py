"""What each family of kernels is and takes, one file a family. Imports no JAX."""
