"""Models whose weights are files of their own, which all models that have the same weights share.

<folder>/<digest>.onnx                      the graph; its larger weights are external data
<folder>/<digest>.original                  the graph as it was, if the model came with external data
<folder>/weights/<2 digits>/<sha256>        the bytes of one weight

Graphs and weights share a folder because onnx refuses external data that is a link, has several names, or lies outside
of the graph's folder. The files of a model can be put together again, byte by byte.

This is plain Python that reads only the outline of a file. It cannot crash on a broken model as native readers do, so
the main process may use it.

`references` knows how a graph refers to a weight, `splitting` takes models apart, and `stored` puts them together.
"""
