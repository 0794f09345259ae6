/**
 * Places the nodes of a directed graph in layers: longest path for the layers, barycentres for the order within them,
 * alignment with neighbours for the places. Pure; a thousand nodes take a few milliseconds.
 */

const SWEEPS = 6,
	MOST_BENDS = 6000;

/**
 * @param {LayoutNode[]} nodes @param {LayoutEdge[]} edges
 * @param {{vertical?: boolean, layerGap?: number, gap?: number}} [options] `vertical`: layers from top to bottom
 * @returns {{places: Map<string, Place>, lines: {from: string, to: string, points: [number, number][]}[], width: number, height: number}}
 */
export function layout(nodes, edges, { vertical = false, layerGap = 56, gap = 18 } = {}) {
	const known = new Map(nodes.map((one, at) => [one.id, at]));
	const links = edges
		.filter((one) => known.has(one.from) && known.has(one.to) && one.from !== one.to)
		.map((one) => [known.get(one.from), known.get(one.to)]);
	const layer = layersOf(nodes.length, links);

	// A long edge gets a bend in each layer that it crosses, so that it goes around nodes; not where there are too many.
	const cells = nodes.map((one, at) => ({
		layer: layer[at],
		size: vertical ? one.width : one.height,
		thick: vertical ? one.height : one.width,
		node: at,
	}));
	const bends = links.reduce((sum, [from, to]) => sum + Math.max(0, layer[to] - layer[from] - 1), 0);
	const chains = [];
	const short = [];
	for (const [from, to] of links) {
		const chain = [from];
		if (bends <= MOST_BENDS) {
			for (let at = layer[from] + 1; at < layer[to]; at += 1) {
				cells.push({ layer: at, size: 6, thick: 0, node: -1 });
				chain.push(cells.length - 1);
			}
		}
		chain.push(to);
		chains.push(chain);
		for (let at = 1; at < chain.length; at += 1) short.push([chain[at - 1], chain[at]]);
	}

	const count = Math.max(0, ...cells.map((one) => one.layer)) + 1;
	const layers = Array.from({ length: count }, () => /** @type {number[]} */ ([]));
	cells.forEach((one, at) => layers[one.layer].push(at));
	const before = neighbours(cells.length, short, 1),
		after = neighbours(cells.length, short, 0);
	order(layers, before, after, cells.length);
	const across = align(layers, cells, before, after, gap);

	const thick = layers.map((row) => Math.max(0, ...row.map((at) => cells[at].thick)));
	const along = [0];
	for (let at = 1; at < count; at += 1) along.push(along[at - 1] + thick[at - 1] + layerGap);
	/** @param {number} at */
	const centre = (at) => along[cells[at].layer] + thick[cells[at].layer] / 2;

	const places = new Map(),
		sizes = nodes;
	nodes.forEach((one, at) => {
		const x = vertical ? across[at] : along[layer[at]] + (thick[layer[at]] - sizes[at].width) / 2;
		const y = vertical ? along[layer[at]] + (thick[layer[at]] - sizes[at].height) / 2 : across[at];
		places.set(one.id, { x, y, width: one.width, height: one.height });
	});
	const lines = chains.map((chain) => {
		const first = chain[0],
			last = chain[chain.length - 1];
		/** @type {[number, number][]} */
		const points = chain.map((at) => {
			const mid = across[at] + cells[at].size / 2;
			const place =
				at === first
					? along[cells[at].layer] + thick[cells[at].layer] / 2 + cells[at].thick / 2
					: at === last
						? centre(at) - cells[at].thick / 2
						: centre(at);
			return vertical ? [mid, place] : [place, mid];
		});
		return { from: nodes[first].id, to: nodes[last].id, points };
	});
	const width = Math.max(0, ...[...places.values()].map((one) => one.x + one.width));
	const height = Math.max(0, ...[...places.values()].map((one) => one.y + one.height));
	return { places, lines, width, height };
}

/** The layer of each node: the longest path that leads to it. @param {number} count @param {number[][]} links */
function layersOf(count, links) {
	const layer = new Array(count).fill(0),
		waits = new Array(count).fill(0),
		after = neighbours(count, links, 0);
	for (const [, to] of links) waits[to] += 1;
	const ready = [];
	for (let at = 0; at < count; at += 1) if (!waits[at]) ready.push(at);
	for (let head = 0; head < ready.length; head += 1) {
		for (const to of after[ready[head]]) {
			layer[to] = Math.max(layer[to], layer[ready[head]] + 1);
			waits[to] -= 1;
			if (!waits[to]) ready.push(to);
		}
	}
	return layer;
}

/** @param {number} count @param {number[][]} links @param {number} end */
function neighbours(count, links, end) {
	const found = Array.from({ length: count }, () => /** @type {number[]} */ ([]));
	for (const link of links) found[link[end]].push(link[end === 0 ? 1 : 0]);
	return found;
}

/** @param {number[][]} layers @param {number[][]} before @param {number[][]} after @param {number} count */
function order(layers, before, after, count) {
	const place = new Float64Array(count);
	/** @param {number[]} row */
	const number = (row) =>
		row.forEach((at, no) => {
			place[at] = no;
		});
	layers.forEach(number);
	for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
		const isDown = sweep % 2 === 0,
			sources = isDown ? before : after;
		const rows = isDown ? layers.slice(1) : layers.slice(0, -1).reverse();
		for (const row of rows) {
			const weight = new Map(
				row.map((at, no) => {
					const near = sources[at];
					return [at, near.length ? near.reduce((sum, one) => sum + place[one], 0) / near.length : no];
				}),
			);
			row.sort((a, b) => weight.get(a) - weight.get(b) || place[a] - place[b]);
			number(row);
		}
	}
}

/** @param {number[][]} layers @param {{size: number}[]} cells @param {number[][]} before @param {number[][]} after @param {number} gap */
function align(layers, cells, before, after, gap) {
	const at = new Float64Array(cells.length);
	for (const row of layers) {
		let y = 0;
		for (const one of row) {
			at[one] = y;
			y += cells[one].size + gap;
		}
	}
	/** @param {number} one */
	const middle = (one) => at[one] + cells[one].size / 2;
	for (let sweep = 0; sweep < SWEEPS * 2; sweep += 1) {
		const isDown = sweep % 2 === 0,
			rows = isDown ? layers : [...layers].reverse();
		for (const row of rows) {
			const wanted = row.map((one) => {
				const near = isDown ? before[one] : after[one];
				return near.length
					? near.reduce((sum, two) => sum + middle(two), 0) / near.length - cells[one].size / 2
					: at[one];
			});
			spread(row, wanted, cells, at, gap);
		}
	}
	const least = Math.min(0, ...at);
	for (let one = 0; one < at.length; one += 1) at[one] -= least;
	return at;
}

/** Puts a row as near to what is wanted as its order and gaps allow: blocks that touch move together to their mean.
 * @param {number[]} row @param {number[]} wanted @param {{size: number}[]} cells @param {Float64Array} at @param {number} gap */
function spread(row, wanted, cells, at, gap) {
	/** @type {{sum: number, count: number, from: number, length: number}[]} */
	const blocks = [];
	let offset = 0;
	const offsets = row.map((one) => {
		const here = offset;
		offset += cells[one].size + gap;
		return here;
	});
	row.forEach((_, no) => {
		blocks.push({ sum: wanted[no] - offsets[no], count: 1, from: no, length: 1 });
		while (blocks.length > 1) {
			const last = blocks[blocks.length - 1],
				previous = blocks[blocks.length - 2];
			if (previous.sum / previous.count <= last.sum / last.count) break;
			blocks.pop();
			previous.sum += last.sum;
			previous.count += last.count;
			previous.length += last.length;
		}
	});
	for (const block of blocks)
		for (let no = block.from; no < block.from + block.length; no += 1)
			at[row[no]] = block.sum / block.count + offsets[no];
}
