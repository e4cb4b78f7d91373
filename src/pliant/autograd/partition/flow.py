"""Minimum cut of a small directed network.

In:     edges `(from, to, capacity)` between hashable vertices, a source and a sink.
Out:    the vertices on the source's side of the minimum cut that lies nearest the sink.
Holds:  the capacities that leave the returned set add up to the maximum flow. Capacities are non-negative integers of
        any size.
Source: Dinic's algorithm (blocking flows on level graphs).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

Vertex = Hashable
UNLIMITED = 1 << 62


class Network:
    """Residual capacities. Vertices are numbers; edge `e` and its reverse are `e` and `e ^ 1`."""

    __slots__ = ("capacity", "edges", "number", "target")

    def __init__(self) -> None:
        self.number: dict[Vertex, int] = {}
        self.target: list[int] = []
        self.capacity: list[int] = []
        self.edges: list[list[int]] = []

    def at(self, vertex: Vertex) -> int:
        """The number of a vertex."""
        found = self.number.get(vertex)
        if found is None:
            found = self.number[vertex] = len(self.edges)
            self.edges.append([])
        return found

    def add(self, start: Vertex, end: Vertex, capacity: int) -> None:
        one, other = self.at(start), self.at(end)
        self.edges[one].append(len(self.target))
        self.edges[other].append(len(self.target) + 1)
        self.target += (other, one)
        self.capacity += (capacity, 0)

    def levels(self, source: int, sink: int) -> list[int]:
        """Distance from the source over edges with capacity left, or -1; empty if the sink is out of reach."""
        target, capacity, edges = self.target, self.capacity, self.edges
        level = [-1] * len(edges)
        level[source] = 0
        queue = [source]
        for vertex in queue:
            for edge in edges[vertex]:
                if capacity[edge] > 0 and level[target[edge]] < 0:
                    level[target[edge]] = level[vertex] + 1
                    queue.append(target[edge])
        return level if level[sink] >= 0 else []

    def push(self, source: int, sink: int, level: list[int], position: list[int]) -> int:
        """Send flow along one path of rising levels; how much, or 0 if none is left. Edges found useless are not looked at
        again in this phase."""
        edges, target, capacity = self.edges, self.target, self.capacity
        path: list[int] = []
        vertex = source
        while vertex != sink:
            above, own = level[vertex] + 1, edges[vertex]
            for index in range(position[vertex], len(own)):
                edge = own[index]
                if level[target[edge]] == above and capacity[edge] > 0:
                    position[vertex] = index
                    path.append(edge)
                    vertex = target[edge]
                    break
            else:
                position[vertex] = len(own)
                if not path:
                    return 0
                level[vertex] = -1
                vertex = target[path.pop() ^ 1]
        amount = min([capacity[edge] for edge in path])
        for edge in path:
            capacity[edge] -= amount
            capacity[edge ^ 1] += amount
        return amount

    def reaching(self, sink: int) -> set[int]:
        """Vertices from which the sink can still be reached."""
        found = {sink}
        queue = [sink]
        for vertex in queue:
            for edge in self.edges[vertex]:
                start = self.target[edge]
                if self.capacity[edge ^ 1] > 0 and start not in found:
                    found.add(start)
                    queue.append(start)
        return found


def min_cut(edges: Iterable[tuple[Vertex, Vertex, int]], source: Vertex, sink: Vertex) -> tuple[int, set[Vertex]]:
    """(value of the maximum flow, vertices on the source's side)."""
    network = Network()
    start, end = network.at(source), network.at(sink)
    for edge in edges:
        network.add(*edge)
    total = 0
    while level := network.levels(start, end):
        position = [0] * len(level)
        while amount := network.push(start, end, level, position):
            total += amount
    after = network.reaching(end)
    return total, {vertex for vertex, number in network.number.items() if number not in after} | {source}
