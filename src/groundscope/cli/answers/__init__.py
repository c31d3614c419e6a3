"""Commands about answers: score them, write them."""
