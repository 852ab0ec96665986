"""All roles on one machine: `embedq up`. Starts processes and watches them; imports none of them."""
