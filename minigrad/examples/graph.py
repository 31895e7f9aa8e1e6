"""A graph convolutional network (Kipf & Welling 2017) on sparse tensors: three communities, a few
members of which are known."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn
from minigrad.nn import functional as F


class GraphConvolution(nn.Module):
    """adjacency @ (x @ weight) + bias, the adjacency sparse."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(adjacency, x @ self.weight) + self.bias


class GCN(nn.Module):
    """Two graph convolutions, dropout between them."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = (
            GraphConvolution(inputs, hidden),
            GraphConvolution(hidden, classes),
        )

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.relu(self.first(x, adjacency)), 0.3, self.training)
        return F.log_softmax(self.second(x, adjacency), 1)


def communities(nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """D^-1/2 (A + I) D^-1/2 of a random graph, sparse, and the community of each node."""
    labels = torch.arange(nodes) % 3
    same = labels == labels.unsqueeze(1)
    edges = (torch.rand(nodes, nodes) < torch.where(same, 24 / nodes, 1.5 / nodes)).triu(1)
    adjacency = (edges + edges.T).float() + torch.eye(nodes)
    root = adjacency.sum(1).rsqrt()
    index = adjacency.nonzero().T
    values = root[index[0]] * root[index[1]]
    return torch.sparse_coo_tensor(index, values, (nodes, nodes)).coalesce(), labels


def main(nodes: int = 300, epochs: int = 60, known: int = 4) -> tuple[list[float], float]:
    """The loss of each epoch on the known nodes, and the accuracy on the others."""
    torch.manual_seed(0)
    adjacency, labels = communities(nodes)
    features = torch.eye(nodes)  # no features but the node itself
    train, test = torch.arange(3 * known), torch.arange(3 * known, nodes)
    model = GCN(nodes, 16, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    losses = []
    for epoch in range(epochs):
        model.train()
        loss = F.nll_loss(model(features, adjacency)[train], labels[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if epoch % 20 == 0:
            print(f"epoch {epoch:2d}  loss {losses[-1]:.4f}")
    model.eval()
    with torch.no_grad():
        found = model(features, adjacency).argmax(1)
    accuracy = (found[test] == labels[test]).float().mean().item()
    print(f"{adjacency.values().numel()} edges; accuracy on {len(test)} nodes {accuracy:.3f}")
    return losses, accuracy


if __name__ == "__main__":
    main()
