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
    """Residual capacities. Edge `e` and its reverse are `e` and `e ^ 1`."""

    __slots__ = ("capacity", "edges", "target")

    def __init__(self) -> None:
        self.target: list[Vertex] = []
        self.capacity: list[int] = []
        self.edges: dict[Vertex, list[int]] = {}

    def add(self, start: Vertex, end: Vertex, capacity: int) -> None:
        self.edges.setdefault(start, []).append(len(self.target))
        self.target.append(end)
        self.capacity.append(capacity)
        self.edges.setdefault(end, []).append(len(self.target))
        self.target.append(start)
        self.capacity.append(0)

    def levels(self, source: Vertex, sink: Vertex) -> dict[Vertex, int]:
        """Distance from the source over edges with capacity left; empty if the sink is out of reach."""
        level = {source: 0}
        queue = [source]
        for vertex in queue:
            for edge in self.edges.get(vertex, ()):
                end = self.target[edge]
                if self.capacity[edge] > 0 and end not in level:
                    level[end] = level[vertex] + 1
                    queue.append(end)
        return level if sink in level else {}

    def push(self, source: Vertex, sink: Vertex, level: dict[Vertex, int], position: dict[Vertex, int]) -> int:
        """Send flow along one path of rising levels; how much, or 0 if none is left."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edge = self._next_edge(vertex, level, position)
            if edge >= 0:
                path.append(edge)
                vertex = self.target[edge]
            elif path:
                level[vertex] = -1
                vertex = self.target[path.pop() ^ 1]
            else:
                return 0
        amount = min(self.capacity[edge] for edge in path)
        for edge in path:
            self.capacity[edge] -= amount
            self.capacity[edge ^ 1] += amount
        return amount

    def _next_edge(self, vertex: Vertex, level: dict[Vertex, int], position: dict[Vertex, int]) -> int:
        """An edge to the next level, or -1; edges found useless are not looked at again in this phase."""
        edges = self.edges.get(vertex, [])
        index = position.get(vertex, 0)
        while index < len(edges):
            edge = edges[index]
            if self.capacity[edge] > 0 and level.get(self.target[edge], -1) == level[vertex] + 1:
                position[vertex] = index
                return edge
            index += 1
        position[vertex] = index
        return -1

    def reaching(self, sink: Vertex) -> set[Vertex]:
        """Vertices from which the sink can still be reached."""
        found = {sink}
        queue = [sink]
        for vertex in queue:
            for edge in self.edges.get(vertex, ()):
                start = self.target[edge]
                if self.capacity[edge ^ 1] > 0 and start not in found:
                    found.add(start)
                    queue.append(start)
        return found


def min_cut(edges: Iterable[tuple[Vertex, Vertex, int]], source: Vertex, sink: Vertex) -> tuple[int, set[Vertex]]:
    """(value of the maximum flow, vertices on the source's side)."""
    network = Network()
    for start, end, capacity in edges:
        network.add(start, end, capacity)
    total = 0
    while level := network.levels(source, sink):
        position: dict[Vertex, int] = {}
        while amount := network.push(source, sink, level, position):
            total += amount
    return total, (set(network.edges) | {source}) - network.reaching(sink)
