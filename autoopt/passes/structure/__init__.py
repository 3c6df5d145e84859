"""Models cut, joined and extended, and the form in which they are stored."""
