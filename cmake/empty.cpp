// A shared library needs a source of its own; all of its code comes from weft_objects.
