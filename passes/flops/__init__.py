"""FLOPs of the products in a module: dots, convolutions, and the calls that stand for them."""
