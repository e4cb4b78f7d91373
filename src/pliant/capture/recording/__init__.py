"""Calls of PyTorch as nodes of the torch-level graph.

recorder              the torch function mode that records
nodes                 what it appends to the graph, and what a traced value is there
torch_calls           which functions record themselves, and how they are called
regions               parts that are traced into graphs of their own
overrides             `__torch_function__` of the program
late_state            what bodies that run after the trace find
stand_ins             new memory in place of views, as long as nobody can tell; what is computed again in backward
tensor_errors         errors of operators as eager words them
"""
