"""Every rule, by operator."""

from pliant.graph.map_rules import derivatives, images, losses, norms, places, tangents
from pliant.graph.map_rules.kernels import Rows

ROWS: Rows = places.ROWS | derivatives.ROWS | images.ROWS | norms.ROWS | losses.ROWS | tangents.ROWS
