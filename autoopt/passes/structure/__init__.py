"""Structure: cutting, joining and dressing models, and the form in which they are stored."""
