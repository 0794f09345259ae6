/**
 * Maps moments to places on a line where long waits are short, so that a run that waited for a day still shows its work. Pure.
 */

/** Work that has less than this share of the time is worth folding for. */
const WORTH = 0.2,
	/** How wide a folded wait is beside all work. */
	GAP = 0.12,
	/** A wait of at least this share of the time is folded. */
	LONG = 0.05;

/**
 * @param {{from: number, to: number}[]} work when something ran @param {number} from @param {number} to @param {boolean} isWanted
 * @returns {{place: (moment: number) => number, moment: (place: number) => number, gaps: {from: number, to: number}[]}}
 *   places are from 0 to 1; gaps are the waits that are folded
 */
export function folded(work, from, to, isWanted) {
	const inside = work
		.map((one) => ({ from: Math.max(from, one.from), to: Math.min(to, one.to) }))
		.filter((one) => one.to > one.from)
		.sort((a, b) => a.from - b.from);
	/** @type {{from: number, to: number}[]} */
	const busy = [];
	for (const one of inside) {
		const last = busy.at(-1);
		if (last && one.from <= last.to) last.to = Math.max(last.to, one.to);
		else busy.push({ ...one });
	}
	const all = busy.reduce((sum, one) => sum + one.to - one.from, 0),
		isWorth = isWanted && all > 0 && all < (to - from) * WORTH;
	const gapWidth = Math.max(1, all * GAP);
	/** @type {{from: number, to: number, width: number, isGap: boolean}[]} */
	const pieces = [];
	let at = from;
	for (const one of [...(isWorth ? busy : []), { from: to, to }]) {
		const length = one.from - at,
			isGap = isWorth && length > Math.max(gapWidth, (to - from) * LONG);
		if (length > 0) pieces.push({ from: at, to: one.from, width: isGap ? gapWidth : length, isGap });
		if (one.to > one.from) pieces.push({ ...one, width: one.to - one.from, isGap: false });
		at = one.to;
	}
	const whole = pieces.reduce((sum, one) => sum + one.width, 0) || 1;
	/** @param {number} moment */
	const place = (moment) => {
		if (moment <= from || !pieces.length) return (moment - from) / whole;
		let before = 0;
		for (const one of pieces) {
			if (moment <= one.to) return (before + ((moment - one.from) / (one.to - one.from)) * one.width) / whole;
			before += one.width;
		}
		return 1 + (moment - to) / whole;
	};
	/** @param {number} share */
	const moment = (share) => {
		let left = share * whole;
		for (const one of pieces) {
			if (left <= one.width) return one.from + (left / one.width) * (one.to - one.from);
			left -= one.width;
		}
		return to;
	};
	return { place, moment, gaps: pieces.filter((one) => one.isGap) };
}
