"""Train the small network that finds an animal in a picture, on scenes that are drawn on the GPU.

python3 training/mask.py --out FOLDER --minutes 8

Writes mask.onnx (inputs `image` and `reference`, float32 [N,3,192,256], 0 to 1; output `mask`
[N,1,192,256], the probability of animal) and mask.json (seed, scenes seen, IoU on scenes that were
not trained on). A reference is the empty scale; zeros mean that there is none. Needs PyTorch and
onnx, which the product does not; a GPU makes minutes of it.

What a scene has at random: floors of any colour with noise, slats, grids, patches and dirt; lamps,
shadows, exposure; animals of any colour, bent, with heads, limbs, wings and tails, one, two or
none, also cut off by the border; wires in front; blur, motion, noise, the blocks of JPEG.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

HEIGHT, WIDTH = 192, 256
SPINE, LIMBS, LIMB = 9, 6, 4
EMPTY, TWO, NO_REFERENCE = 0.06, 0.08, 0.5


class Scenes:
    """Draws batches of scenes. All that is random comes from one generator."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self._chance = torch.Generator(device).manual_seed(seed)
        rows = torch.linspace(-HEIGHT / WIDTH, HEIGHT / WIDTH, HEIGHT, device=device)
        columns = torch.linspace(-1, 1, WIDTH, device=device)
        self._y, self._x = torch.meshgrid(rows, columns, indexing="ij")
        self._dct = _dct_matrix(device)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        drawn = torch.rand(*shape, generator=self._chance, device=self._device)
        return low + (high - low) * drawn

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._chance, device=self._device)

    def chance(self, count: int, share: float) -> Tensor:
        return (self.uniform(count) < share).float().view(count, 1, 1, 1)

    def draw(self, count: int) -> tuple[Tensor, ...]:
        """(image, reference or zeros, mask)."""
        floor = self._floor(count)
        lamp = self._lamp(count)
        depth = self._silhouette(count) * (1 - self.chance(count, EMPTY))
        second = self._silhouette(count) * self.chance(count, TWO)
        depth = torch.maximum(depth, second)
        mask = (depth > 0).float()
        skin = self._skin(count, depth)
        soft = self._blurred(mask, 0.8)
        shadow = self._shadow(count, mask)
        dirt = 1 - self.chance(count, 0.3) * 0.5 * (self._noise(count, 1, 24) > 1.3).float()
        lit = floor * dirt * lamp * (1 - shadow)
        picture = lit * (1 - soft) + skin * lamp * soft
        wires = self._wires(count)
        colour = self.uniform(count, 3, 1, 1, low=0.05, high=0.9)
        picture = picture * (1 - wires) + colour * wires
        before = floor * lamp * (1 - wires) + colour * wires
        image = self._exposed(picture, count)
        reference = self._exposed(self._nudged(before, count), count)
        reference = reference * (1 - self.chance(count, NO_REFERENCE))
        return self._narrowed(count, image, reference, mask * (1 - wires))

    def _narrowed(self, count: int, *pictures: Tensor) -> tuple[Tensor, ...]:
        """Some pictures are of another shape: their last columns are repeated to the sides."""
        cut = self.uniform(count, 1, high=0.25) * (self.uniform(count, 1) < 0.3).float() * WIDTH
        at = torch.arange(WIDTH, device=self._device).view(1, WIDTH).expand(count, WIDTH)
        at = torch.minimum(torch.maximum(at, cut.long()), WIDTH - 1 - cut.long())
        at = at.view(count, 1, 1, WIDTH)
        return tuple(
            picture.gather(3, at.expand(-1, picture.shape[1], HEIGHT, -1)) for picture in pictures
        )

    def _noise(self, count: int, channels: int, cells: int) -> Tensor:
        """Smooth noise of about one standard deviation."""
        rows = max(2, cells * HEIGHT // WIDTH)
        grid = self.normal(count, channels, rows, cells)
        return functional.interpolate(grid, (HEIGHT, WIDTH), mode="bicubic", align_corners=False)

    def _stripes(self, count: int) -> Tensor:
        turn = self.uniform(count, 1, 1, 1, high=math.pi)
        pitch = self.uniform(count, 1, 1, 1, low=4, high=45)
        phase = self.uniform(count, 1, 1, 1, high=6.3)
        wave = torch.sin((self._x * torch.cos(turn) + self._y * torch.sin(turn)) * pitch + phase)
        return torch.sigmoid((wave - self.uniform(count, 1, 1, 1, low=-0.8, high=0.8)) * 12)

    def _colour(self, count: int) -> Tensor:
        """Mostly dull, as barns and animals are; sometimes any."""
        base = self.uniform(count, 3, 1, 1, low=0.02, high=0.95)
        grey = self.uniform(count, 1, 1, 1, low=0.02, high=0.95)
        bright = self.uniform(count, 1, 1, 1) ** 2
        return grey * (1 - bright) + base * bright

    def _floor(self, count: int) -> Tensor:
        floor, other = self._colour(count), self._colour(count)
        floor = floor + (self._colour(count) - floor) * self._slope(count) * self.chance(count, 0.5)
        lines = self._stripes(count) * self.chance(count, 0.35)
        lines = torch.maximum(lines, self._stripes(count) * self.chance(count, 0.2))
        floor = floor * (1 - lines) + (0.6 * floor + 0.4 * other) * lines
        patches = torch.sigmoid(8 * (self._noise(count, 1, 6) - 0.8)) * self.chance(count, 0.25)
        patches = patches * self.uniform(count, 1, 1, 1, high=0.35)
        floor = floor * (1 - patches) + other * patches
        for cells, strength in ((8, 0.10), (32, 0.08), (128, 0.10)):
            share = self.uniform(count, 1, 1, 1, high=strength)
            floor = floor * (1 + share * self._noise(count, 1, cells))
        tint = self.uniform(count, 1, 1, 1, high=0.06) * self._noise(count, 3, 5)
        return (floor + tint).clamp(0, 1)

    def _slope(self, count: int) -> Tensor:
        """From 0 to 1 across the picture, in any direction, soon or late."""
        turn = self.uniform(count, 1, 1, 1, high=2 * math.pi)
        across = self._x * torch.cos(turn) + self._y * torch.sin(turn)
        steep = self.uniform(count, 1, 1, 1, low=1.5, high=9.0)
        return torch.sigmoid(steep * (across - self.uniform(count, 1, 1, 1, low=-0.7, high=0.7)))

    def _lamp(self, count: int) -> Tensor:
        x = self.uniform(count, 1, 1, 1, low=-1.3, high=1.3)
        y = self.uniform(count, 1, 1, 1, low=-1.0, high=1.0)
        far = (self._x - x) ** 2 + (self._y - y) ** 2
        fall = self.uniform(count, 1, 1, 1, high=1.6)
        return self.uniform(count, 1, 1, 1, low=0.6, high=1.25) / (1 + fall * far)

    def _silhouette(self, count: int) -> Tensor:
        """Height above the floor, 0 beside the animal: a body along a spine, limbs, a head."""
        size = self.uniform(count, 1, low=0.2, high=1.7)
        slim = self.uniform(count, 1, low=0.18, high=0.6)
        along = torch.linspace(-0.5, 0.5, SPINE, device=self._device).view(1, SPINE)
        bend = self.normal(count, 1) * 0.6
        turn = bend * along * 2
        step = size / (SPINE - 1)
        x, y = torch.cumsum(torch.cos(turn) * step, 1), torch.cumsum(torch.sin(turn) * step, 1)
        x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        ends = (1 - (2 * along).abs() ** self.uniform(count, 1, low=1.5, high=7)).clamp(0.0) ** 0.5
        taper = 1 + self.uniform(count, 1, low=-0.6, high=0.6) * along * 2
        waist = (1 + 0.1 * self.normal(count, SPINE)).clamp(0.7, 1.3)
        radius = 0.5 * size * slim * (0.25 + 0.75 * ends) * taper * waist
        chains = [(x, y, radius), *(self._limb(count, x, y, radius) for _ in range(LIMBS))]
        heading = self.uniform(count, 1, high=2 * math.pi)
        far_x, far_y = 0.35 * self.normal(count, 1), 0.25 * self.normal(count, 1)
        rough = 1 + 0.03 * self._noise(count, 1, 30)
        height = torch.zeros(count, 1, HEIGHT, WIDTH, device=self._device)
        for chain_x, chain_y, chain_radius in chains:
            turned_x = chain_x * torch.cos(heading) - chain_y * torch.sin(heading) + far_x
            turned_y = chain_x * torch.sin(heading) + chain_y * torch.cos(heading) + far_y
            for at in range(chain_x.shape[1] - 1):
                tube = self._tube(turned_x[:, at : at + 2], turned_y[:, at : at + 2],
                                  chain_radius[:, at : at + 2], rough)  # fmt: skip
                height = torch.maximum(height, tube)
        return height.sqrt()

    def _tube(self, x: Tensor, y: Tensor, radius: Tensor, rough: Tensor) -> Tensor:
        """The square of the height of a round tube between two points with their own radii."""
        (x0, x1), (y0, y1), (r0, r1) = (
            [part.view(-1, 1, 1, 1) for part in values.unbind(1)] for values in (x, y, radius)
        )
        run_x, run_y = x1 - x0, y1 - y0
        off_x, off_y = self._x - x0, self._y - y0
        share = (off_x * run_x + off_y * run_y) / (run_x**2 + run_y**2 + 1e-6)
        share = share.clamp(0, 1)
        far = (off_x - share * run_x) ** 2 + (off_y - share * run_y) ** 2
        wide = ((r0 + share * (r1 - r0)) * rough).clamp(0.0)
        return (wide**2 - far).clamp(0)

    def _limb(
        self, count: int, x: Tensor, y: Tensor, radius: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Legs, wings, a neck with its head, or none: a chain from a place of the spine."""
        at = (self.uniform(count) * SPINE).long().clamp(0, SPINE - 1).view(count, 1)
        start_x, start_y, root = (values.gather(1, at) for values in (x, y, radius))
        length = root * self.uniform(count, 1, low=0.8, high=4.0)
        way = self.uniform(count, 1, high=2 * math.pi)
        curl = self.uniform(count, 1, low=-1.8, high=1.8)
        along = torch.linspace(0, 1, LIMB, device=self._device).view(1, LIMB)
        turn = way + curl * along
        limb_x = start_x + torch.cumsum(torch.cos(turn) * along.sign() * length / (LIMB - 1), 1)
        limb_y = start_y + torch.cumsum(torch.sin(turn) * along.sign() * length / (LIMB - 1), 1)
        thick = root * self.uniform(count, 1, low=0.1, high=0.6)
        swell = 1 + self.uniform(count, 1, low=-0.8, high=0.9) * along
        there = (self.uniform(count, 1) < 0.45).float()
        return limb_x, limb_y, thick * swell.clamp(0.1) * there

    def _skin(self, count: int, depth: Tensor) -> Tensor:
        skin = self._colour(count)
        spots = torch.sigmoid(10 * (self._noise(count, 1, 12) - 0.5)) * self.chance(count, 0.3)
        skin = skin * (1 - spots) + self._colour(count) * spots
        top = depth.amax((2, 3), keepdim=True).clamp(1e-3)
        dark = self.uniform(count, 1, 1, 1, low=0.0, high=0.6)
        shade = 1 - dark * (1 - (depth / top).clamp(0, 1)) ** 2
        slope = (depth - depth.roll((2, 2), (2, 3))) * self.uniform(count, 1, 1, 1, low=-6, high=6)
        grain = 1 + self.uniform(count, 1, 1, 1, high=0.12) * self._noise(count, 1, 90)
        tint = self.uniform(count, 1, 1, 1, high=0.06) * self._noise(count, 3, 6)
        return (skin * shade * grain * (1 + slope.clamp(-0.4, 0.4)) + tint).clamp(0, 1)

    def _shadow(self, count: int, mask: Tensor) -> Tensor:
        x = self.uniform(count, 1, 1, 1, low=-0.14, high=0.14)
        y = self.uniform(count, 1, 1, 1, low=-0.14, high=0.14)
        moved = self._moved(mask, x, y)
        return self._blurred(moved, 3.0) * self.uniform(count, 1, 1, 1, high=0.65)

    def _moved(self, picture: Tensor, x: Tensor, y: Tensor) -> Tensor:
        count = picture.shape[0]
        theta = torch.zeros(count, 2, 3, device=self._device)
        theta[:, 0, 0] = theta[:, 1, 1] = 1
        theta[:, 0, 2], theta[:, 1, 2] = x.view(-1), y.view(-1)
        grid = functional.affine_grid(theta, list(picture.shape), align_corners=False)
        return functional.grid_sample(picture, grid, padding_mode="border", align_corners=False)

    def _nudged(self, picture: Tensor, count: int) -> Tensor:
        """A camera that hangs a little differently by now."""
        x = 0.004 * self.normal(count, 1, 1, 1)
        return self._moved(picture, x, 0.004 * self.normal(count, 1, 1, 1))

    def _wires(self, count: int) -> Tensor:
        wires = torch.zeros(count, 1, HEIGHT, WIDTH, device=self._device)
        for _ in range(3):
            turn = self.uniform(count, 1, 1, 1, high=math.pi)
            off = self.uniform(count, 1, 1, 1, low=-0.8, high=0.8)
            far = (self._x * torch.cos(turn) + self._y * torch.sin(turn) - off).abs()
            thin = self.uniform(count, 1, 1, 1, low=0.002, high=0.012)
            wires = torch.maximum(wires, (far < thin).float() * self.chance(count, 0.15))
        return wires

    def _blurred(self, picture: Tensor, sigma: float) -> Tensor:
        reach = math.ceil(2.5 * sigma)
        at = torch.arange(-reach, reach + 1, device=self._device).float()
        kernel = torch.exp(-(at**2) / (2 * sigma**2))
        kernel = kernel / kernel.sum()
        channels = picture.shape[1]
        row = kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
        padded = functional.pad(picture, (reach, reach, reach, reach), mode="replicate")
        across = functional.conv2d(padded, row, groups=channels)
        return functional.conv2d(across, row.transpose(2, 3), groups=channels)

    def _exposed(self, picture: Tensor, count: int) -> Tensor:
        """What a cheap camera makes of it."""
        cast = self.uniform(count, 3, 1, 1, low=0.85, high=1.15)
        gain = self.uniform(count, 1, 1, 1, low=0.55, high=1.5)
        gamma = self.uniform(count, 1, 1, 1, low=0.6, high=1.5)
        seen = (picture * cast * gain).clamp(1e-4, 1) ** gamma
        soft = self.chance(count, 0.5)
        seen = (
            seen * (1 - soft)
            + self._blurred(seen, float(self.uniform(1, low=0.5, high=2.2))) * soft
        )
        moves = self.chance(count, 0.15)
        streak = torch.stack([seen.roll(shift, 3) for shift in range(-3, 4)]).mean(0)
        seen = seen * (1 - moves) + streak * moves
        seen = seen + self.uniform(count, 1, 1, 1, high=0.05) * self.normal(*seen.shape)
        packed = self.chance(count, 0.6)
        return (seen * (1 - packed) + self._blocks(seen, count) * packed).clamp(0, 1)

    def _blocks(self, picture: Tensor, count: int) -> Tensor:
        """Quantised as JPEG does, in blocks of eight by eight."""
        step = self.uniform(count, 1, 1, 1, 1, 1, low=0.01, high=0.08)
        grow = (
            1
            + torch.arange(8, device=self._device).view(8, 1)
            + torch.arange(8, device=self._device)
        )
        blocks = picture.unfold(2, 8, 8).unfold(3, 8, 8)
        waves = self._dct @ blocks @ self._dct.T
        waves = torch.round(waves / (step * grow)) * (step * grow)
        blocks = self._dct.T @ waves @ self._dct
        return blocks.permute(0, 1, 2, 4, 3, 5).reshape(picture.shape)


def _dct_matrix(device: torch.device) -> Tensor:
    at = torch.arange(8, device=device).float()
    matrix = torch.cos(math.pi / 8 * (at + 0.5).view(1, 8) * at.view(8, 1)) / 2
    matrix[0] /= math.sqrt(2)
    return matrix


class Step(nn.Sequential):
    """Two convolutions, each with its normalisation."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )


class Network(nn.Module):
    """A U-Net at half the resolution of the picture; the last step smooths it back up."""

    def __init__(self, widths: tuple[int, ...] = (24, 36, 56, 80, 112)) -> None:
        super().__init__()
        inputs = (6, *widths[:-1])
        self.down = nn.ModuleList(Step(a, b, 2) for a, b in zip(inputs, widths, strict=True))
        ups = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(Step(a + b, b) for a, b in ups)
        self.last = nn.Conv2d(widths[0], 1, 3, 1, 1)

    def forward(self, image: Tensor, reference: Tensor) -> Tensor:
        """Logits."""
        layer = torch.cat([image, reference], 1)
        passed = []
        for step in self.down:
            layer = step(layer)
            passed.append(layer)
        for step, beside in zip(self.up, passed[-2::-1], strict=True):
            layer = functional.interpolate(layer, scale_factor=2.0, mode="nearest")
            layer = step(torch.cat([layer, beside], 1))
        logits = self.last(layer)
        return functional.interpolate(
            logits, scale_factor=2.0, mode="bilinear", align_corners=False
        )


class Exported(nn.Module):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor, reference: Tensor) -> Tensor:
        return torch.sigmoid(self.network(image, reference))


def loss_of(logits: Tensor, mask: Tensor) -> Tensor:
    """Cross entropy, and the overlap: an animal may be a small part of the picture."""
    cross = functional.binary_cross_entropy_with_logits(logits, mask)
    probability = torch.sigmoid(logits)
    both = (probability * mask).sum((1, 2, 3))
    either = probability.sum((1, 2, 3)) + mask.sum((1, 2, 3))
    dice = 1 - (2 * both + 50) / (either + 50)
    return cross + dice.mean()


@torch.no_grad()
def iou(network: nn.Module, scenes: Scenes, batches: int) -> tuple[float, float]:
    """Mean over scenes with an animal: (with the empty scale, without it)."""
    network.eval()
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    for _ in range(batches):
        image, reference, mask = scenes.draw(64)
        seen = network(image, reference) > 0
        both = (seen & (mask > 0.5)).sum((1, 2, 3)).float()
        either = (seen | (mask > 0.5)).sum((1, 2, 3)).float()
        there = mask.sum((1, 2, 3)) > 200
        known = reference.sum((1, 2, 3)) > 0
        for values, chosen in zip(found, (there & known, there & ~known), strict=True):
            values.append((both / either.clamp(1))[chosen])
    network.train()
    return float(torch.cat(found[0]).mean()), float(torch.cat(found[1]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seed", type=int, default=21)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(given.seed)
    torch.backends.cudnn.benchmark = True
    scenes, unseen = Scenes(given.seed, device), Scenes(given.seed + 1, device)
    network = Network().to(device)
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998), use_buffers=True
    )
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-4)
    began, steps, limit_s = time.monotonic(), 0, given.minutes * 60
    while (spent := time.monotonic() - began) < limit_s:
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(1, (steps + 1) / 200) * (0.01 + 0.99 * (1 - spent / limit_s))
        with torch.no_grad():
            image, reference, mask = scenes.draw(given.batch)
        with torch.autocast(device.type, torch.bfloat16):
            logits = network(image, reference)
        loss = loss_of(logits.float(), mask)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        average.update_parameters(network)
        steps += 1
        if steps % 500 == 0:
            print(f"{spent:5.0f} s  step {steps}  loss {loss:.3f}", flush=True)
    final = average.module
    with_reference, without = iou(final, unseen, 20)
    exported = Exported(final).eval().cpu().float()
    blank = torch.zeros(1, 3, HEIGHT, WIDTH)
    torch.onnx.export(
        exported, (blank, blank), str(given.out / "mask.onnx"), dynamo=False, opset_version=17,
        input_names=["image", "reference"], output_names=["mask"],
        dynamic_axes={name: {0: "n"} for name in ("image", "reference", "mask")},
    )  # fmt: skip
    figures = {
        "seed": given.seed,
        "scenes": steps * given.batch,
        "minutes": round(limit_s / 60, 1),
        "iou_with_reference": round(with_reference, 4),
        "iou_without_reference": round(without, 4),
        "parameters": sum(weights.numel() for weights in final.parameters()),
    }
    (given.out / "mask.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
