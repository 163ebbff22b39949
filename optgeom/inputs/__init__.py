"""What goes in: classes and their counts, labels, tables, files; and work spread over processes."""
