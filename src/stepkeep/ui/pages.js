/**
 * The table of pages: address, name, place in the navigation, keys, and the function that builds it. A page that needs
 * another scope than `read` says so, and is offered to no other reader.
 */
import { approvalsPage } from "./pages/approvals.js";
import { auditPage } from "./pages/audit.js";
import { editorPage } from "./pages/editor.js";
import { errorsPage } from "./pages/errors.js";
import { comparePage } from "./pages/compare.js";
import { hooksPage } from "./pages/hooks.js";
import { jobsPage } from "./pages/jobs.js";
import { keysPage } from "./pages/keys.js";
import { outboxPage } from "./pages/outbox.js";
import { policiesPage } from "./pages/policies.js";
import { triggersPage } from "./pages/triggers.js";
import { usersPage } from "./pages/users.js";
import { overviewPage } from "./pages/overview.js";
import { runPage } from "./pages/run.js";
import { runsPage } from "./pages/runs.js";
import { workersPage } from "./pages/workers.js";
import { workflowPage, workflowsPage } from "./pages/workflows.js";

/** @type {PageEntry[]} */
export const PAGES = [
	{ path: "/runs", label: "Runs", icon: "runs", keys: "g r", group: "work", build: runsPage },
	{ path: "/runs/:id", label: "", icon: "runs", keys: "", group: "work", build: runPage },
	{ path: "/runs/:id/compare", label: "", icon: "runs", keys: "", group: "work", build: comparePage },
	{ path: "/approvals", label: "Approvals", icon: "inbox", keys: "g a", group: "work", build: approvalsPage },
	{ path: "/overview", label: "Overview", icon: "chart", keys: "g o", group: "work", build: overviewPage },
	{ path: "/errors", label: "Errors", icon: "fire", keys: "g e", group: "work", build: errorsPage },
	{ path: "/workflows", label: "Workflows", icon: "flow", keys: "g w", group: "build", build: workflowsPage },
	{ path: "/workflows/*name", label: "", icon: "flow", keys: "", group: "build", build: workflowPage },
	{ path: "/editor", label: "", icon: "flow", keys: "", group: "build", build: editorPage },
	{ path: "/workers", label: "Workers", icon: "worker", keys: "g k", group: "build", build: workersPage },
	{ path: "/jobs", label: "Jobs", icon: "layers", keys: "g j", group: "build", build: jobsPage },
	{ path: "/triggers", label: "Triggers", icon: "bolt", keys: "g t", group: "build", build: triggersPage },
	{ path: "/outbox", label: "Outbox", icon: "send", keys: "g x", group: "build", build: outboxPage },
	{ path: "/hooks", label: "Hooks", icon: "mail", keys: "g h", group: "build", build: hooksPage },
	{ path: "/policies", label: "Policies", icon: "shield", keys: "g p", group: "admin", build: policiesPage },
	{ path: "/keys", label: "Keys", icon: "key", keys: "g y", group: "admin", build: keysPage },
	{ path: "/users", label: "Users", icon: "people", keys: "g u", group: "admin", build: usersPage },
	{ path: "/audit", label: "Audit", icon: "book", keys: "g d", group: "admin", scope: "admin", build: auditPage },
];
