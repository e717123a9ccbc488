"""What server and sites say to each other, and in which bytes."""
