"""What each command says: its report, made from what the passes found."""
