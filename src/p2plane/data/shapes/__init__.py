"""Objects made by program: surfaces, the parts that carry them, and the categories built of parts."""
