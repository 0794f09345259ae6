/**
 * The table of pages: address, name, place in the navigation, keys, and the function that builds it.
 * @module
 */
import { approvalsPage } from "./pages/approvals.js";
import { runPage } from "./pages/run.js";
import { runsPage } from "./pages/runs.js";

/** @typedef {{path: string, label: string, icon: string, keys: string, group: "work" | "build" | "admin", build: (context: import("./app.js").Context) => import("./app.js").Page}} Entry */

/** @type {Entry[]} */
export const PAGES = [
  { path: "/runs", label: "Runs", icon: "runs", keys: "g r", group: "work", build: runsPage },
  { path: "/runs/:id", label: "", icon: "runs", keys: "", group: "work", build: runPage },
  { path: "/approvals", label: "Approvals", icon: "inbox", keys: "g a", group: "work", build: approvalsPage },
];
