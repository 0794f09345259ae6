// Written by tests/ui/declarations.py from the OpenAPI document.

declare namespace Answers {

interface Adopted { run: string; step: string; undo: boolean; }

interface Allowed { allow: (string)[]; history?: (Revision)[]; }

interface ApprovalList { approvals: (OpenGate)[]; is_complete: boolean; next: string | null; unreadable?: (UnreadableGate)[]; }

interface AttemptDetail { number: number; fence: number; worker: string | null; state: AttemptState; started_at: string | null; ended_at: string | null; category: string | null; error: string | null; in_doubt: boolean; cost: Record<string, number> | null; code: CodeOf | null; evidence?: Record<string, any> | null; }

type AttemptState = "cancelled" | "failed" | "lost" | "open" | "released" | "succeeded" | "timed_out" | "waited";

interface AuditChain { checked: number; is_intact: boolean; broken_at: number | null; beside: number; }

interface AuditEntry { id: string; at: string; actor: string; key: string | null; vouched_by: string | null; operation: string; target: string; outcome: Outcome; code: string | null; request_id: string | null; address: string | null; source: "audit" | "people"; detail?: Record<string, any>; }

interface AuditPage { audit: (AuditEntry)[]; next: string | null; chain: AuditChain; }

interface BackfillView { backfill?: string; trigger: string; dry_run?: boolean; state?: "done" | "running" | "stopped"; since?: string; until?: string; reached?: string | null; at_once?: number; started?: number; fired_before?: number; refused?: number; created_at?: string; created_by?: string; ended_at?: string | null; moments?: number; first?: (string)[]; }

interface Ballot { by: string; decision: "approved" | "rejected"; at: string; for?: string; }

interface Barred { person: string; rule: string; reason: string; }

interface CallBody { kind: "child" | "continue" | "gate" | "sleep" | "step" | "wait_for"; name: string; digest: string; arguments?: any; step: Record<string, any>; }

interface CallFate { step: string; call: string; reason: Why; says: string; was: StepState; may_repeat: boolean; key: string | null; }

interface CallsFate { flow: string; adopted: number; again: (CallFate)[]; }

interface CallsRequest { run_id: string; no: number; fence: number; start?: number; until?: number | null; }

interface CallsSoFar { calls: number; seen: number; }

interface CatchUpView { keep: string; most?: number; window: string; spread?: string; }

type Category = "agent" | "auth" | "conflict" | "external" | "governance" | "poison" | "timeout" | "transient" | "unknown" | "validation";

interface CauseView { code: string; subject: string; sentence: string; since: string | null; until: string | null; command: string | null; people?: People; pause?: PausedBy; }

interface CertificateView { verdict: string; ok: boolean; run: string; tree?: Record<string, any> | null; chain?: Record<string, any> | null; }

interface CheckedDefinition { ok: boolean; workflow: string | null; dialect: string | null; version: number | null; steps: number | null; document: Record<string, any> | null; problems: (Record<string, any>)[]; warnings: (Record<string, any>)[]; }

interface CheckpointPlace { seq: number; name: string; }

interface CheckpointRequest { run_id: string; no: number; fence: number; name: string; value?: any; }

interface CheckpointView { name: string; value: any; fence: number; at: string | null; }

interface CheckpointsRequest { run_id: string; no: number; fence: number; seq?: number; name?: string; }

type ChildMode = "awaited" | "detached";

interface ChildRun { step: string; run_id: string; workflow: string; version: number; detached: boolean; state: string; error: string | null; undoes?: string; is_deleted?: boolean; cost?: Record<string, number>; children?: (ChildRun)[]; }

interface ClaimRequest { slots?: number; queues?: (number)[] | null; handlers?: (string)[] | null; groups?: (string)[] | null; blocking?: (number)[]; blocking_slots?: number; lease_us?: number | null; give?: "inputs" | "rows"; request_id?: string | null; wait_seconds?: number; after?: number | null; run_id?: string | null; }

interface ClaimedStep { run_id: string; step: string; no: number; fence: number; attempt: number; handler: string | null; workflow: string; version: number; definition_id: number; lease_us: number; timeout_seconds: number; claimed_at: number; run_due_at: number | null; flow: CallsSoFar | null; row?: any; inputs?: any; input?: any; business_key?: string | null; correlation_id?: string | null; woken_by?: Record<string, any> | null; has_rules?: boolean; by_hand?: boolean; checkpoints?: Record<string, any>; more_checkpoints?: CheckpointPlace | null; }

interface Claiming { slots?: number; queues?: (number)[] | null; handlers?: (string)[] | null; groups?: (string)[] | null; blocking?: (number)[]; blocking_slots?: number; lease_us?: number | null; give?: "inputs" | "rows"; }

interface Claims { claims: (ClaimedStep)[]; }

interface CodeOf { handler: string; digest: string | null; module: string | null; version: string | null; }

interface Completed { step: string; outcome: ManualOutcome; by: string; at: string; for?: string; notes?: string; evidence?: (string)[]; claim?: Record<string, any>; repeated: boolean; }

interface CompletionBody { token: string; outcome?: "Cancelled" | "Failed" | "Succeeded"; output?: any; notes?: string; evidence?: (string)[]; for?: string | null; by?: string | null; }

type ContinuationKind = "fork" | "migrate" | "rerun" | "retry" | "rollback";

interface ContinuationPreview { run_id: string; as: ContinuationKind; from: string | null; version: number; adopted: (string)[]; runs_again: (string)[]; reopens: (string)[]; may_repeat: (string)[]; owns_undo: (string)[]; calls: (CallsFate)[]; continued_by: (string)[]; child_of: string | null; steps: (StepFate)[]; }

interface Continues { run: string; as: ContinuationKind; from: string | null; adopted: (string)[]; }

interface ConversationList { conversations: (ConversationView)[]; more: boolean; }

interface ConversationView { name: string; count: number; size_bytes: number; changed_at: string | null; }

interface Cost { run_id: string; cost: Record<string, number>; steps: (CostOfStep)[]; }

interface CostOfStep { name: string; state: string; cost: Record<string, number>; }

interface Counted { approved: number; rejected: number; }

interface Created { run_id: string; created: boolean; result?: ResultView; }

interface Decided { step: string; decision: string; by: string; at: string; comment?: string; reason?: string; to?: (string)[]; for?: string; by_right_of?: (string)[]; delegation?: string; key?: string; service?: boolean; level?: number; evidence?: string; votes?: (Ballot)[]; counted?: Counted; needs?: Needs; repeated: boolean; }

interface DefinitionSummary { workflow: string; version: number; dialect: string; digest: string; published_at: string; published_by: string; withdrawn: Withdrawal | null; }

interface DefinitionView { definition: DefinitionSummary; document: Record<string, any>; }

interface Definitions { definitions: (DefinitionSummary)[]; next?: string | null; }

interface Delegation { id: string; delegator: string; delegate: string; reason: string; valid_from: string | null; valid_to: string | null; granted_at: string; granted_by: string; revoked_at: string | null; revoked_by: string | null; }

interface DelegationList { delegations: (Delegation)[]; next?: string | null; }

interface DelegationView { delegation: Delegation; }

interface DeletedConversations { deleted: (string)[]; }

interface Delivered { result: "ignored" | "refused" | "sent" | "started" | "would send" | "would start"; hook: string; id?: string; code?: string; message?: string; name?: string; workflow?: string; key?: string; payload?: any; start?: string | null; input?: any; business_key?: string | null; run_id?: string | null; created?: boolean; consumed_by?: number | null; kept_until?: string | null; started?: boolean; repeated?: boolean; dropped?: boolean; }

interface DeliveredTo { seq: number; number: number | null; }

interface DeliveryDetails { delivery: DeliveryView; events: (UndeliveredEvent)[]; actions: (SinkAction)[]; }

interface DeliveryList { deliveries: (DeliveryView)[]; next: string | null; }

interface DeliveryView { run: string; worker: string | null; sink: string; state: string; events: (string)[]; delivered: DeliveredTo; last_seq: number; attempts: number; ready_at: string | null; lease_until: string | null; held_by: string | null; dead_at: string | null; error: string | null; }

interface DisabledUser { user: User; revoked_keys: (string)[]; }

interface DroppedEvent { dropped: string; sink: string; }

interface DroppedMessages { key: string; dropped: (string)[]; }

interface Durations { runs: number; p50_seconds?: number | null; p90_seconds?: number | null; p99_seconds?: number | null; max_seconds?: number | null; }

type Effect = "irreversible" | "read" | "unknown" | "write";

interface Emitted { event: string; name: string; firings: (FiringView)[]; }

interface EmittedEvent { name: string; payload?: any; }

interface Ended { ended: boolean; }

interface EndedRun { run_id: string; workflow: string | null; state: RunState; ended_at: string | null; }

interface EndingView { workflow: string; states: (string)[]; }

interface Entered { state: string; at: string | null; }

interface EntryView { run_id: string; seq: number; at: string; hash: string; lines: (Record<string, any>)[]; body?: string; }

interface ErrorGroup { workflow: string | null; step: string | null; category: string | null; message: string; term: string; runs: number; versions: (number)[]; first_at: string | null; last_at: string | null; newest_run: string; spans: (number)[]; }

interface ErrorList { at: string | null; since: string | null; looked_at: number; is_complete: boolean; errors: (ErrorGroup)[]; }

interface EvidenceRequest { evidence: (OneEvidence)[]; }

interface ExplanationView { subject: string; state: string; stuck: boolean; causes: (CauseView)[]; continues?: Continues | null; continued_by?: (string)[]; }

interface FailureCounts { since: string | null; total: number; is_complete: boolean; is_estimate: boolean; by_category: Record<string, number>; }

interface FieldDifference { field: string; kind: Kind; old?: any; new?: any; places: (PlaceDifference)[]; }

interface FieldOfBoth { field: string; first: any; second: any; }

interface Fired { trigger: string; moment: string; backfill: string | null; }

interface FiringView { trigger?: string; moment: string; due_at: string; state: string; run_id: string | null; reason: string | null; recorded_at: string; source?: string; backfill?: string; depth?: number; }

interface GateReopened { step: string; runs: number; }

interface Health { status: string; }

interface Heartbeat { busy?: boolean | null; report?: Record<string, any> | null; }

interface History { history: (HistoryEntry)[]; chain: PeopleChain; next: string | null; }

interface HistoryEntry { seq: number; at: string; event: string; subject: string; by: string; vouched_by?: string | null; detail?: Record<string, any>; hash?: string; }

interface Holder { run_id: string; step: string; amount: "exclusive" | "shared" | number; since: string | null; }

interface HookList { hooks: (HookView)[]; next?: string | null; }

interface HookView { hook: string; scheme: "github" | "standard"; secrets: (string)[]; message?: Record<string, any>; start?: Record<string, any>; when?: string; saved_at?: string; saved_by?: string; }

interface IdleStarted { state: RunState; }

interface InputsRequest { runs: (OneRun)[]; }

interface Item { key: string; ordinal: number; value: any; at: string | null; }

interface ItemPage { contents: (Item)[]; more: boolean; }

interface ItemPlace { key: string; ordinal: number; }

interface JobList { jobs: (JobView)[]; next: string | null; }

interface JobRunView { run_id: string; result: RunOutcome; detail: string | null; new_run_id: string | null; }

interface JobRuns { runs: (JobRunView)[]; next: string | null; }

type JobState = "done" | "running" | "stopped";

interface JobView { job?: string; action: "backfill" | "cancel" | "migrate" | "pause" | "rerun" | "resume"; dry_run?: boolean; backfill?: string; trigger?: string; state?: JobState; where?: Record<string, any>; compensate?: boolean; unfinished?: boolean; reason?: string; workflow?: string; to?: number; of?: number | null; since?: string | null; until?: string | null; reached?: string | null; at_once?: number; started?: number; fired_before?: number; runs?: number; first?: (string)[]; waiting?: number; done?: number; unchanged?: number; refused?: number; created_at?: string | null; created_by?: string; ended_at?: string | null; created?: boolean; }

interface JournalEnd { seq: number; head: string; }

interface JournalPage { run_id: string; entries: (EntryView)[]; next: string | null; }

interface JudgeFinding { line: number; code: string; run: string | null; message: string; }

interface JudgedStep { effect: string; rule: string | null; reason: string; }

interface Kept { kept: number; }

interface KeptMessage { key: string; id: string; name: string; payload: any; sender: string; arrived_at: string; expires_at: string; expired: boolean; }

interface Key { id: string; owner: string; state: "expired" | "live" | "revoked"; scopes: (string)[]; created_at: string; created_by: string; expires_at: string | null; revoked_at: string | null; revoked_by: string | null; replaces: string | null; of_session: boolean; max_concurrent_runs: number | null; max_requests_per_min: number | null; queues: (string)[] | null; handlers: (string)[] | null; }

interface KeyList { keys: (Key)[]; next?: string | null; }

interface KeyedMessage { name: string; payload?: any; id?: string | null; by?: string | null; business_key?: string | null; correlation_id?: string | null; ttl?: string | null; start?: string | null; input?: any; }

type Kind = "edge" | "meaning" | "setting";

interface LateTimers { count: number; is_complete: boolean; since: string | null; }

interface LimitDetail { running: number | null; rate: string | null; burst: number; name: string; said_by: string; of_keys: (LimitOfKey)[]; held: number; keys_held: number; waiting: number; in_use: (LimitKeyUse)[]; next_key: string | null; history: (Revision)[]; }

interface LimitHolder { run_id: string; step: string; weight: number; since: string | null; }

interface LimitKeyUse { key: string; held: number; waiting: number; holders: (LimitHolder)[]; }

interface LimitList { limits: (LimitSummary)[]; }

interface LimitOfKey { running: number | null; rate: string | null; burst: number; key: string; }

interface LimitSummary { running: number | null; rate: string | null; burst: number; name: string; said_by: string; of_keys: (LimitOfKey)[]; held: number; keys_held: number; waiting: number; }

interface LinkCode { code: string; }

interface LiveRuns { examined: number; is_complete: boolean; could_continue: number; must_stay: number; reasons: (ReasonToStay)[]; examples: (StayingRun)[]; }

interface LookedAt { runs: number; of: number | null; of_at_least: boolean; back_to: string | null; last: string | null; }

interface MadeKey { key: Key; secret: string; replaced?: Key; }

type ManualOutcome = "Cancelled" | "Failed" | "Succeeded";

interface ManualSignal { schemaVersion: 1; runId: string; actionId: string; completionToken: string; outcome: "Cancelled" | "Failed" | "Succeeded"; actorUserId: string; completedAtIso: string; notes?: string; evidenceRefs?: (string)[]; }

interface Membership { id: string; subject: string; subject_kind: SubjectKind; role?: string; group?: string; valid_from: string | null; valid_to: string | null; granted_at: string; granted_by: string; revoked_at: string | null; revoked_by: string | null; }

interface MembershipView { membership: Membership; }

interface MessageList { messages: (KeptMessage)[]; more: boolean; }

interface MessageSent { id: string; key?: string; consumed_by?: string | null; kept_until?: string | null; started?: boolean; repeated: boolean; dropped?: boolean; run_id: string | null; }

interface Migrated { run_id: string; new_run_id: string; version: number; created: boolean; }

interface MigrationPreview { run_id: string; state: RunState; from: number; to: number; allowed: boolean; reasons: (string)[]; adopted: (string)[]; runs: (string)[]; reopens: (string)[]; added: (string)[]; removed: (string)[]; }

interface MigrationsPreview { workflow: string; to: number; examined: number; is_complete: boolean; could_migrate: number; must_stay: number; states: (RunsToMigrate)[]; reasons: (WhyNotMigrated)[]; reopens: (GateReopened)[]; staying: (RunNotMigrated)[]; }

interface Needs { approved: number; of: string; }

interface NewItem { keep?: boolean; key: string; ordinal?: number | null; value: any; }

interface NewMessage { name: string; payload?: any; id?: string | null; by?: string | null; }

interface NewRunBody { by?: string | null; workflow: string; version?: number | null; input?: any; business_key?: string | null; correlation_id?: string | null; priority?: number | null; labels?: Record<string, string> | null; start_now?: boolean; at?: string | null; delay?: string | null; }

interface NewTemplateRun { template_name?: string; priority?: number; webhook_url?: string | null; webhook_secret?: string | null; }

interface NewToken { step: string; by: string; at: string; reason: string; repeated: boolean; token: string; }

interface NextMoment { moment: string; local: string; due_at: string; }

interface NextMoments { trigger: string; state: "active" | "paused" | "removed"; next: (NextMoment)[]; }

interface NoteKept { step?: string; note: string; by: string; at: string; state: RunState; repeated: boolean; }

interface OneEvidence { run_id: string; no: number; fence: number; evidence: Record<string, any>; }

interface OneLease { run_id: string; no: number; fence: number; lease_us: number; }

interface OneReport { run_id: string; no: number; fence: number; outcome: OutcomeBody; streams?: (StreamBody)[]; }

interface OneRun { run_id: string; details?: boolean; outputs?: (number)[]; states?: boolean; }

interface OpenGate { run_id: string; step: string; workflow: string; asked_by: (string)[]; opened_at: string | null; until: string | null; late: boolean; level: number; prompt: string; facts: Record<string, any>; shown_digest: string; not: (string)[]; quorum: number; counted: Counted; needs: Needs; votes: (Ballot)[]; changes: RequestedChanges | null; rule: string | null; reason: string | null; business_key: string | null; may_decide: boolean; refusal: Refusal | null; command: string | null; }

interface OpenWork { needs: string; ready: number; is_complete: boolean; oldest_seconds: number; }

interface OutboxStatus { sinks: (SinkLag)[]; }

type Outcome = "done" | "failed" | "refused";

interface OutcomeBody { kind: "completed" | "failed" | "released" | "rules_failed" | "rules_passed" | "stopped" | "suspended" | "then" | "timed_out" | "waiting"; output?: any; steps?: (Record<string, any>)[] | null; calls?: (CallBody)[] | null; seen?: number; code?: string | null; cancels?: (number)[] | null; token_sha256?: string | null; error?: string | null; category?: string | null; delay_us?: number | null; final?: boolean; unrun?: boolean; error_class?: string | null; event?: string | null; timeout_us?: number | null; takes_timeouts?: boolean; where?: string | null; count?: number | null; until?: string | null; reason?: string | null; unfit?: string | null; blames?: (number)[] | null; cost?: any; emit?: (EmittedEvent)[]; }

interface Parent { run_id: string; no: number; activation: number; mode: ChildMode; }

interface PastEntry { seq: number; time: string | null; event: string; actor: string; last_seq: number; }

interface PastRunDetail { id: string; workflow: string; version: number; state: RunState; since: string | null; category: string | null; error: string | null; input: any; input_unknown?: string; }

interface PastStepDetail { no: number; name: string; phase: string; state: string; since: string | null; attempt: number | null; fence: number; holder: string | null; due_at: string | null; category: string | null; error: string | null; output: any; output_unknown?: string; }

interface PastView { at: PastEntry; run: PastRunDetail; steps: (PastStepDetail)[]; findings: (JudgeFinding)[]; }

interface PauseList { pauses: (Paused)[]; }

interface Paused { scope: "queue" | "tenant" | "workflow"; queue: string | null; workflow: string | null; by: string; since: string; reason: string; }

interface PausedBy { scope: "queue" | "run" | "tenant"; queue?: string | null; }

interface PausedClaims { scope: "queue" | "tenant"; queue?: string | null; by: string; since: string | null; reason: string; }

interface PausedWorkflow { workflow: string; by: string; since: string | null; reason: string; }

interface People { of: string; needs: number; may: (string)[]; may_not: (Barred)[]; more: number; }

interface PeopleChain { entries: number; is_intact: boolean; broken_at: number | null; differences: (string)[]; }

type Phase = "check" | "main" | "undo";

interface PlaceDifference { place: string; old: string; new: string; }

interface PolicyList { policies: (PolicyRevision)[]; next?: string | null; }

interface PolicyRevision { revision: number; policy: string; digest: string; published_at: string; published_by: string; }

interface PolicyView { revision: number; policy: string; digest: string; published_at: string; published_by: string; document: Record<string, any>; }

type PrincipalKind = "service" | "user";

interface Problem { type: string; title: string; status: number; detail: string; request_id?: string | null; code: string; errors?: (Record<string, any>)[] | null; problems?: (Record<string, any>)[] | null; winner?: Record<string, any> | null; earlier?: Record<string, any> | null; quota?: string | null; rule?: string | null; person?: string | null; }

interface Progress { fraction: number | null; text: string; at: string | null; }

interface PublishedAnswer { definition: DefinitionSummary; warnings: (Record<string, any>)[]; }

interface QuarantineList { quarantined: (QuarantineView)[]; }

interface QuarantineView { run: string; reason: string; by: string; at: string; released_by: string | null; released_at: string | null; release_reason: string | null; }

interface QueueView { needs: string; queue: string; kind: string; handler: string; capabilities: (string)[]; ready: number; is_complete: boolean; oldest_at: string | null; oldest_seconds: number; workers: number; code: string; why: string; }

interface Queues { tenant: string; owner: string | null; queues: (WorkQueue)[]; }

interface Quotas { max_concurrent_runs?: number | null; max_requests_per_min?: number | null; max_kept_messages?: number | null; max_kept_message_bytes?: number | null; max_triggers?: number | null; max_definitions?: number | null; max_definition_bytes?: number | null; max_settings?: number | null; max_people?: number | null; max_stream_rows?: number | null; max_stream_bytes?: number | null; max_notes_per_hour?: number | null; max_bytes_per_hour?: number | null; }

interface ReachableNetwork { allow: (string)[]; }

interface Readiness { status: string; database: string; }

interface ReasonToStay { reason: string; runs: number; }

interface Received { result: string; }

interface RecordedCalls { calls: (WorkCall)[]; until: number; following: number | null; }

interface RecordedCheckpoints { checkpoints: Record<string, any>; following: CheckpointPlace | null; }

interface Redriven { redriven: (RedrivenRun)[]; }

interface RedrivenRun { run: string; sink: string; }

interface Refusal { rule: string; message: string; }

interface Registered { worker: RegisteredWorker; }

interface RegisteredWorker { id: string; no: number; state: WorkerState; incarnation: number; capacity: number; capabilities: (string)[]; owner: string | null; tenant: string; heartbeat_seconds?: number; }

interface Registration { app: string; instance: string; host?: string; pid?: number; capacity?: number; capabilities?: (string)[]; }

interface Remaining { step: string; state: StepState; reason: Remains; says: string; run_id: string; level: number; }

type Remains = "attempted" | "child" | "no_undo" | "not_finished";

interface RemovedHook { removed: string; }

interface RemovedItems { removed: number; }

interface RemovedSink { removed: string; discarded_runs: number; }

interface RenewRequest { leases: (OneLease)[]; }

interface Renewals { renewed: (Renewed)[]; }

interface Renewed { run_id: string; no: number; fence: number; run_state: RunState; }

interface Replay { run: string; ok: boolean; verdicts: (ReplayedVerdict)[]; }

interface ReplayedVerdict { step: string; entry: number; revision: number | null; effect: string; rule: string | null; reason: string; again: JudgedStep; ok: boolean; }

interface Replied { reply: Record<string, any>; }

interface Replies { replies: (Record<string, any>)[]; claims: (ClaimedStep)[]; }

interface ReportRequest { reports: (OneReport)[]; request_id?: string | null; claim?: Claiming | null; }

interface RequestedChanges { decision: string; by: string; at: string | null; comment: string; for?: string; }

interface Resource { resource: string; most: number | null; held: number; holders: (Holder)[]; }

interface ResourceList { resources: (Resource)[]; }

interface Restored { workflow: string; version: number; state: "published"; }

interface ResultView { run_id: string; state: RunState; finished: boolean; output: any; error: string | null; }

interface Revision { revision: number; at: string; by: string; content: any; }

interface RevokedKey { key: Key; successors: (string)[]; sessions: number; }

type Rollback = "complete" | "none" | "partial";

interface RollbackPreview { run_id: string; state: RunState; possible: boolean; refusal: string | null; ends: RunState; rollback: Rollback; undo: (Undo)[]; cannot_undo: (Remaining)[]; running: (RunningStep)[]; }

interface RunChange { state: RunState; repeated: boolean; }

interface RunCost { run_id: string; total_cost_usd: number; steps: (TemplateStepCost)[]; }

interface RunCounts { since?: string | null; total: number; is_complete: boolean; is_estimate: boolean; by_state: Record<string, number>; }

interface RunCreated { run_id: string; }

interface RunData { runs: (WorkRun)[]; }

interface RunDetail { id: string; workflow: string; version: number; dialect: string; state: RunState; rollback: Rollback; category: string | null; error: string | null; priority: number; business_key: string | null; correlation_id: string | null; created_by: string; created_at: string | null; starts_at: string | null; started_at: string | null; ended_at: string | null; rerun_of: string | null; asked_before: (string)[]; labels: Record<string, string>; journal: JournalEnd; quarantined: QuarantineView | null; fired: Fired | null; input: any; output: any; cost: Record<string, number>; warnings: (string)[]; waiting_for: (Waiting)[]; continued_from?: string; parent?: Parent; children?: (ChildRun)[]; continued_as?: Successor; tree_cost?: Record<string, number>; children_left_off?: number; continues: Continues | null; continued_by: (string)[]; waits_for_slot?: string | null; }

interface RunDifferences { first: string; second: string; same: boolean; run: (FieldOfBoth)[]; steps: (StepOfBoth)[]; }

interface RunList { runs: (RunSummary)[]; total: number; is_complete: boolean; next: string | null; looked_at?: LookedAt; unreadable?: (UnreadableRun)[]; }

interface RunNotMigrated { run_id: string; state: RunState; reasons: (string)[]; }

type RunOutcome = "done" | "refused" | "unchanged" | "waiting";

type RunState = "blocked" | "cancelled" | "compensating" | "failed" | "idle" | "paused" | "queued" | "rolled_back" | "running" | "stopping" | "succeeded" | "validating";

interface RunStatus { id: string; status: string; }

interface RunSummary { id: string; workflow: string; version: number; dialect: string; state: RunState; rollback: Rollback; category: string | null; error: string | null; priority: number; business_key: string | null; correlation_id: string | null; created_by: string; created_at: string | null; starts_at: string | null; started_at: string | null; ended_at: string | null; rerun_of: string | null; asked_before: (string)[]; labels: Record<string, string>; journal: JournalEnd; quarantined: QuarantineView | null; fired: Fired | null; }

interface RunView { run: RunDetail; steps: (StepDetail)[]; }

interface RunningStep { step: string; says: string; run_id: string; level: number; }

interface RunsByState { live: RunCounts; recent: RunCounts; }

interface RunsToMigrate { state: RunState; version: number; allowed: boolean; runs: number; }

interface SampledFailures { total: number; is_estimate: boolean; by_category: Record<string, number>; }

interface SampledRuns { total: number; is_complete: boolean; is_estimate: boolean; looked_at: number; by_state: Record<string, number>; }

interface SavedHook { hook: HookView; }

interface SavedItems { ordinals: (number)[]; }

interface ScheduleView { every?: string; cron?: string | null; zone?: string; gap?: string | null; fold?: string | null; jitter?: string; }

interface SchemaDocument { ref: string; digest: string; bytes: number; published_at: string; published_by: string; document?: any; }

interface SchemaSummary { ref: string; digest: string; bytes: number; published_at: string; published_by: string; }

interface SchemaView { schema: SchemaDocument; }

interface Schemas { schemas: (SchemaSummary)[]; next?: string | null; }

type Scope = "admin" | "complete" | "decide" | "metrics" | "operate" | "read" | "start" | "vouch" | "work";

interface SessionView { principal: string; tenant: string; scopes: (string)[]; csrf: string | null; expires_at: string | null; }

interface SignIn { key: string; }

interface Simulation { workflow: string; version: number; dialect: string; steps: (string)[]; paths: number; unwalked: number; longest: Record<string, any>; findings: (Record<string, any>)[]; endings: (Record<string, any>)[]; bounded?: (string)[]; children?: (Record<string, any>)[]; }

interface SinkAction { at: string; actor: string; action: string; sink: string; run: string | null; event: string | null; reason: string; }

interface SinkActions { actions: (SinkAction)[]; }

interface SinkLag { sink: string; waiting: number; dead: number; lag_seconds: number; }

interface SinkList { sinks: (SinkSummary)[]; next?: string | null; }

interface SinkSummary { name: string; kind: string; on: (string)[]; events: (string)[]; options: Record<string, any>; created_at: string; created_by: string; waiting: number; dead: number; }

interface SinkView { name: string; kind: string; on: (string)[]; events: (string)[]; options: Record<string, any>; created_at: string; created_by: string; }

interface Skip { reason: string; text: string; of?: string | null; condition?: string | null; }

interface Slot { scope: "tenant" | "workflow"; workflow: string | null; most: number | null; held: number; waiting: number; }

interface SlotList { slots: (Slot)[]; }

interface SlowStep { workflow: string; version: number; step: string; attempts: number; failed: number; mean_seconds: number; max_seconds: number; run_id: string; }

interface Span { at: string | null; succeeded: number; failed: number; other: number; }

interface Started { run_id: string; created: boolean; }

interface Statistics { at: string | null; since: string | null; runs: SampledRuns; throughput: (Span)[]; durations: Durations; failures: SampledFailures; workflows: (WorkflowNumbers)[]; backlog: (OpenWork)[]; slowest_steps: (SlowStep)[]; newest_ends: (EndedRun)[]; }

interface StatisticsView { statistics: Statistics; }

interface Status { at: string | null; runs: RunsByState; failures: FailureCounts; queues: (QueueView)[]; workers: (WorkerView)[]; paused: (PausedClaims)[]; paused_workflows: (PausedWorkflow)[]; waiting_for_slots: number; late_timers: LateTimers; stuck_runs: (string)[] | null; problems: (string)[]; }

interface StatusView { status: Status; }

interface StayingRun { run_id: string; reasons: (string)[]; }

interface StepAttempts { run_id: string; step: string; attempts: (any)[]; }

interface StepDetail { no: number; name: string; phase: Phase; kind: string; call: string | null; state: StepState; attempts: number; losses: number; category: string | null; error: string | null; in_doubt: boolean; output: any; depends_on: (string)[]; started_at: string | null; ended_at: string | null; due_at: string | null; record: Record<string, any> | null; adopted: Adopted | null; cost: Record<string, number>; worker: string | null; history: (AttemptDetail)[]; states: (Entered)[]; case?: string; skipped: Skip | null; until: string | null; choices: (string)[]; progress: Progress | null; checkpoints: (CheckpointView)[]; }

interface StepDifference { name: string; change: string; differences: (FieldDifference)[]; }

interface StepFate { step: string; adopted: boolean; reason: Why; says: string; was: StepState | null; effect: Effect; undo: boolean; may_repeat: boolean; }

interface StepOfBoth { name: string; only_in?: "first" | "second" | null; differences?: (FieldOfBoth)[]; seconds?: (number | null)[]; }

type StepState = "awaiting_approval" | "awaiting_children" | "awaiting_completion" | "awaiting_event" | "cancelled" | "failed" | "pending" | "ready" | "retrying" | "running" | "skipped" | "succeeded" | "validating";

interface StepStatus { id: string; name: string; status: string; }

interface StepStatuses { run_id: string; steps: (StepStatus)[]; }

interface StepView { run: RunDetail; step: StepDetail; }

interface Steps { run_id: string; steps: any; }

interface StoredOne { definition: WorkDefinition; }

interface StreamBody { name: string; chunks: (any)[]; start?: number; after?: string | null; }

interface StreamList { run_id: string; streams: (StreamSummary)[]; }

interface StreamPage { run_id: string; pieces: (StreamPiece)[]; after: number; over: boolean; }

interface StreamPiece { number: number; step: string; name: string; position: string; at: string; chunks: (any)[]; restart: boolean; keeps: string | null; }

interface StreamSummary { name: string; step: string; chunks: number; bytes: number; position: string; }

interface StreamsRequest { run_id: string; no: number; fence: number; streams: (StreamBody)[]; }

type SubjectKind = "group" | "person";

interface Successor { run_id: string; state: string; error: string | null; }

interface TemplateStepCost { id: string; name: string; status: string; cost_usd: number; }

interface Tenant { name: string; vouching: Vouching; created_at: string; created_by: string; }

interface TenantList { tenants: (Tenant)[]; }

interface TenantQuotas { tenant: string; quotas: Quotas; }

interface TenantSigning { tenant: string; secrets: (string)[]; }

interface TenantView { tenant: Tenant; }

interface TestedSink { sink: string; delivered: boolean; error: string | null; }

interface TriggerDetails { trigger: string; workflow: string; version: number | null; declared: boolean; kind: string; state: "active" | "paused" | "removed"; overlap: string; next_at: string | null; created_at: string; created_by: string; schedule?: ScheduleView; catch_up?: CatchUpView; event?: string; ended?: EndingView; condition?: string; with?: any; paused_at?: string; paused_by?: string | null; next: (NextMoment)[]; firings: (FiringView)[]; backfills: (BackfillView)[]; }

interface TriggerList { triggers: (TriggerView)[]; next?: string | null; }

interface TriggerView { trigger: string; workflow: string; version: number | null; declared: boolean; kind: string; state: "active" | "paused" | "removed"; overlap: string; next_at: string | null; created_at: string; created_by: string; schedule?: ScheduleView; catch_up?: CatchUpView; event?: string; ended?: EndingView; condition?: string; with?: any; paused_at?: string; paused_by?: string | null; }

interface UndeliveredEvent { id: string; type: string; source: string; at: string; state: string; data: any; }

interface Undo { position: number; step: string; undo: string; run_id: string; level: number; }

interface UnreadableGate { run_id: string; message: string; }

interface UnreadableRun { id: string | null; state: string | null; table: string; row: string; reason: string; message: string; }

interface UnservedSteps { unserved: (string)[]; }

interface Usage { seconds: number; measured: number; busy: number; slots: number; claims: number; settled: number; utilisation: number; }

interface User { name: string; kind: PrincipalKind; display: string; created_at: string; created_by: string; disabled_at: string | null; disabled_by: string | null; }

interface UserDetails { name: string; kind: PrincipalKind; display: string; created_at: string; created_by: string; disabled_at: string | null; disabled_by: string | null; roles: (string)[]; groups: (string)[]; memberships: (Membership)[]; delegations: (Delegation)[]; keys: (string)[]; }

interface UserDetailsView { user: UserDetails; }

interface UserList { users: (User)[]; is_complete?: boolean; next: string | null; }

interface UserView { user: User; }

interface Version { version: string; python: string; }

interface VersionDifferences { from: VersionName; to: VersionName; same: boolean; workflow: (FieldDifference)[]; steps: (StepDifference)[]; consequences: (string)[]; live?: LiveRuns; }

interface VersionName { workflow: string; version: number; }

type Vouching = "allowed" | "refused";

interface Waiting { step: string; for: string; attempts?: number; category?: string | null; error?: string | null; elements?: number; settled?: number; failed?: number; run_id?: string; event?: string; prompt?: string; roles?: (string)[]; groups?: (string)[]; approvers?: (string)[]; of?: string; not?: (string)[]; level?: number; quorum?: number; votes?: (Ballot)[]; rule?: string; until: string | null; }

interface Where { business_key?: string | null; correlation_id?: string | null; error?: string | null; labels?: Record<string, string> | null; roots?: boolean | null; since?: string | null; state?: (string)[] | null; text?: string | null; until?: string | null; workflow?: string | null; }

type Why = "added" | "chosen" | "elements" | "follows" | "in_doubt" | "informs" | "input_differs" | "not_finished" | "own_decision" | "plan_differs" | "skipped" | "succeeded" | "undone";

interface WhyNotMigrated { reason: string; runs: number; }

interface Withdrawal { at: string; by: string; reason: string; }

interface Withdrawn { workflow: string; version: number; state: "withdrawn"; reason: string; triggers: (string)[]; }

interface WorkCall { no: number; fence: number; kind: string; name: string; digest: string; state: StepState; settled?: number; at?: number; category?: Category | null; error?: string | null; output?: any; }

interface WorkDefinition { id: number; name: string; version: number; dialect: string; digest: string; queues: (number)[]; document: string; }

interface WorkOutput { no: number; output: any; absent?: boolean; }

interface WorkQueue { number: number; kind: string; name: string; capabilities: (string)[]; group: string; }

interface WorkRun { run_id: string; details?: Record<string, any>; outputs?: (WorkOutput)[]; steps?: (any)[]; }

interface WorkerList { workers: (WorkerView)[]; next?: string | null; }

type WorkerState = "busy" | "draining" | "idle" | "initializing" | "shutdown" | "unresponsive";

interface WorkerView { id: string; state: WorkerState; silent: boolean; incarnation: number; capacity: number; held: number | null; free: number | null; usage: (Usage)[]; capabilities: (string)[]; queues: (string)[] | null; handlers: (string)[]; kinds: (string)[]; misfits: (string)[]; only_run: string | null; host: string | null; pid: number | null; version: string | null; started_at: string | null; heard_at: string | null; }

interface WorkflowNumbers { workflow: string; runs: number; succeeded: number; failed: number; p50_seconds: number | null; p95_seconds: number | null; newest_at: string | null; started: (number)[]; failed_in: (number)[]; }

interface Written { written: number; }

type Get<A extends string> =
	A extends `/as/run/runs/${string}/cost` ? RunCost :
	A extends `/as/run/runs/${string}/events` ? any :
	A extends `/as/run/runs/${string}/steps` ? StepStatuses :
	A extends `/runs/${string}/steps/${string}/attempts` ? StepAttempts :
	A extends `/runs/${string}/streams/${string}/pieces` ? StreamPage :
	A extends `/as/run/runs/${string}` ? RunStatus :
	A extends `/work/workers/${string}/notices` ? any :
	A extends `/runs/${string}/outbox/${string}` ? DeliveryDetails :
	A extends `/runs/${string}/steps/${string}` ? StepView :
	A extends `/runs/${string}/streams/${string}` ? any :
	A extends `/workflows/${string}/versions/${string}` ? DefinitionView :
	A extends `/jobs/${string}/runs` ? JobRuns :
	A extends `/runs/${string}/certificate` ? CertificateView :
	A extends `/runs/${string}/compare` ? RunDifferences :
	A extends `/runs/${string}/cost` ? Cost :
	A extends `/runs/${string}/evidence` ? any :
	A extends `/runs/${string}/explain` ? ExplanationView :
	A extends `/runs/${string}/journal` ? JournalPage :
	A extends `/runs/${string}/log` ? any :
	A extends `/runs/${string}/past` ? PastView :
	A extends `/runs/${string}/policy` ? Replay :
	A extends `/runs/${string}/result` ? ResultView :
	A extends `/runs/${string}/rollback` ? RollbackPreview :
	A extends `/runs/${string}/steps` ? Steps :
	A extends `/runs/${string}/stream` ? any :
	A extends `/runs/${string}/streams` ? StreamList :
	A extends `/tenants/${string}/quotas` ? TenantQuotas :
	A extends `/tenants/${string}/signing` ? TenantSigning :
	A extends `/triggers/${string}/next` ? NextMoments :
	A extends `/work/definitions/${string}` ? StoredOne :
	A extends `/workflows/${string}/compare` ? VersionDifferences :
	A extends `/workflows/${string}/simulation` ? Simulation :
	A extends `/workflows/${string}/unserved` ? UnservedSteps :
	A extends "/oidc/callback" ? any :
	A extends "/oidc/login" ? any :
	A extends "/outbox/history" ? SinkActions :
	A extends "/outbox/status" ? OutboxStatus :
	A extends "/work/network" ? ReachableNetwork :
	A extends "/work/queues" ? Queues :
	A extends `/jobs/${string}` ? JobView :
	A extends `/limits/${string}` ? LimitDetail :
	A extends `/policies/${string}` ? PolicyView :
	A extends `/runs/${string}` ? RunView | Record<string, any> :
	A extends `/schemas/${string}` ? SchemaView :
	A extends `/triggers/${string}` ? TriggerDetails :
	A extends `/users/${string}` ? UserDetailsView :
	A extends `/workflows/${string}` ? DefinitionView :
	A extends "/api-keys" ? KeyList :
	A extends "/approvals" ? ApprovalList :
	A extends "/audit" ? AuditPage :
	A extends "/conversations" ? ConversationList :
	A extends "/delegations" ? DelegationList :
	A extends "/errors" ? ErrorList :
	A extends "/explain" ? ExplanationView :
	A extends "/healthz" ? Health :
	A extends "/history" ? History :
	A extends "/hooks" ? HookList :
	A extends "/jobs" ? JobList :
	A extends "/limits" ? LimitList :
	A extends "/mailbox" ? MessageList :
	A extends "/metrics" ? any :
	A extends "/network" ? Allowed :
	A extends "/openapi.json" ? any :
	A extends "/outbox" ? DeliveryList :
	A extends "/pauses" ? PauseList :
	A extends "/policies" ? PolicyList :
	A extends "/quarantine" ? QuarantineList :
	A extends "/readyz" ? Readiness :
	A extends "/resources" ? ResourceList :
	A extends "/runs" ? RunList | Record<string, any> :
	A extends "/schemas" ? Schemas :
	A extends "/session" ? SessionView :
	A extends "/sinks" ? SinkList :
	A extends "/slots" ? SlotList :
	A extends "/statistics" ? StatisticsView :
	A extends "/status" ? StatusView :
	A extends "/stream" ? any :
	A extends "/tenants" ? TenantList :
	A extends "/triggers" ? TriggerList :
	A extends "/users" ? UserList :
	A extends "/version" ? Version :
	A extends "/workers" ? WorkerList :
	A extends "/workflows" ? Definitions :
	any;

type Post<A extends string> =
	A extends `/as/run/runs/${string}/approve` ? RunStatus :
	A extends `/as/run/runs/${string}/cancel` ? RunStatus :
	A extends `/runs/${string}/outbox/${string}/drop` ? DroppedEvent :
	A extends `/runs/${string}/steps/${string}/complete` ? Completed :
	A extends `/runs/${string}/steps/${string}/decide` ? Decided :
	A extends `/runs/${string}/steps/${string}/token` ? NewToken :
	A extends `/triggers/${string}/backfills/${string}/stop` ? BackfillView :
	A extends `/workflows/${string}/versions/${string}/restore` ? Restored :
	A extends `/workflows/${string}/versions/${string}/withdraw` ? Withdrawn :
	A extends `/work/workers/${string}/calls` ? RecordedCalls :
	A extends `/work/workers/${string}/checkpoint` ? Replied :
	A extends `/work/workers/${string}/checkpoints` ? RecordedCheckpoints :
	A extends `/work/workers/${string}/claim` ? Claims :
	A extends `/work/workers/${string}/drain` ? Registered :
	A extends `/work/workers/${string}/evidence` ? Kept :
	A extends `/work/workers/${string}/heartbeat` ? Registered :
	A extends `/work/workers/${string}/inputs` ? RunData :
	A extends `/work/workers/${string}/renew` ? Renewals :
	A extends `/work/workers/${string}/report` ? Replies :
	A extends `/work/workers/${string}/streams` ? Written :
	A extends "/as/run/runs" ? RunCreated :
	A extends "/conversations/items/read" ? ItemPage :
	A extends "/conversations/items/remove" ? RemovedItems :
	A extends "/pauses/queue/resume" ? PauseList :
	A extends "/pauses/tenant/resume" ? PauseList :
	A extends "/pauses/workflow/resume" ? PauseList :
	A extends `/api-keys/${string}/rotate` ? MadeKey :
	A extends `/hooks/${string}/test` ? Delivered :
	A extends `/jobs/${string}/stop` ? JobView :
	A extends `/migrations/${string}/preview` ? MigrationsPreview :
	A extends `/runs/${string}/approve` ? Decided :
	A extends `/runs/${string}/cancel` ? RunChange :
	A extends `/runs/${string}/continuation-preview` ? ContinuationPreview :
	A extends `/runs/${string}/escalate` ? Decided :
	A extends `/runs/${string}/fork` ? Started :
	A extends `/runs/${string}/freeze` ? RunChange :
	A extends `/runs/${string}/messages` ? MessageSent :
	A extends `/runs/${string}/migrate` ? Migrated :
	A extends `/runs/${string}/migration-preview` ? MigrationPreview :
	A extends `/runs/${string}/notes` ? NoteKept :
	A extends `/runs/${string}/pause` ? RunChange :
	A extends `/runs/${string}/quarantine` ? QuarantineView :
	A extends `/runs/${string}/reassign` ? Decided :
	A extends `/runs/${string}/reject` ? Decided :
	A extends `/runs/${string}/release` ? QuarantineView :
	A extends `/runs/${string}/request-changes` ? Decided :
	A extends `/runs/${string}/rerun` ? Started :
	A extends `/runs/${string}/rerun-from` ? Started :
	A extends `/runs/${string}/resume` ? RunChange :
	A extends `/runs/${string}/retry` ? Started :
	A extends `/runs/${string}/start` ? IdleStarted :
	A extends `/sinks/${string}/test` ? TestedSink :
	A extends `/triggers/${string}/backfills` ? BackfillView :
	A extends `/triggers/${string}/fire` ? FiringView :
	A extends `/triggers/${string}/pause` ? TriggerView :
	A extends `/triggers/${string}/resume` ? TriggerView :
	A extends `/users/${string}/disable` ? DisabledUser :
	A extends `/users/${string}/enable` ? UserView :
	A extends `/users/${string}/grant` ? MembershipView :
	A extends `/users/${string}/revoke` ? MembershipView :
	A extends "/conversations/items" ? SavedItems :
	A extends "/conversations/prune" ? DeletedConversations :
	A extends "/delegations/end" ? DelegationView :
	A extends "/limits/clear" ? LimitList :
	A extends "/limits/set" ? LimitDetail :
	A extends "/outbox/redrive" ? Redriven :
	A extends "/pauses/queue" ? PauseList :
	A extends "/pauses/tenant" ? PauseList :
	A extends "/pauses/workflow" ? PauseList :
	A extends "/policies/off" ? PolicyRevision :
	A extends "/resources/clear" ? ResourceList :
	A extends "/runs/bulk" ? JobView :
	A extends "/session/link" ? SessionView :
	A extends "/slots/clear" ? SlotList :
	A extends "/work/workers" ? Registered :
	A extends "/workflows/check" ? CheckedDefinition :
	A extends `/hooks/${string}` ? Received :
	A extends `/migrations/${string}` ? JobView :
	A extends "/api-keys" ? MadeKey :
	A extends "/delegations" ? DelegationView :
	A extends "/events" ? Emitted :
	A extends "/hooks" ? SavedHook :
	A extends "/messages" ? MessageSent :
	A extends "/policies" ? PolicyRevision :
	A extends "/resources" ? ResourceList :
	A extends "/runs" ? Created :
	A extends "/session" ? SessionView :
	A extends "/sinks" ? SinkView :
	A extends "/slots" ? SlotList :
	A extends "/tenants" ? TenantView :
	A extends "/triggers" ? TriggerView :
	A extends "/users" ? UserView :
	A extends "/workflows" ? PublishedAnswer :
	any;

type Query<A extends string> =
	A extends `/as/run/runs/${string}/cost` ? {  } :
	A extends `/as/run/runs/${string}/events` ? { since_id?: string | null | false; } :
	A extends `/as/run/runs/${string}/steps` ? {  } :
	A extends `/runs/${string}/steps/${string}/attempts` ? {  } :
	A extends `/runs/${string}/streams/${string}/pieces` ? { step?: string | null | false; after?: number | string | null | false; limit?: number | string | null | false; } :
	A extends `/as/run/runs/${string}` ? {  } :
	A extends `/work/workers/${string}/notices` ? {  } :
	A extends `/runs/${string}/outbox/${string}` ? {  } :
	A extends `/runs/${string}/steps/${string}` ? {  } :
	A extends `/runs/${string}/streams/${string}` ? { step?: string | null | false; } :
	A extends `/workflows/${string}/versions/${string}` ? {  } :
	A extends `/jobs/${string}/runs` ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends `/runs/${string}/certificate` ? {  } :
	A extends `/runs/${string}/compare` ? { other?: string | null | false; } :
	A extends `/runs/${string}/cost` ? {  } :
	A extends `/runs/${string}/evidence` ? { payloads?: boolean | "true" | "false" | null | false; } :
	A extends `/runs/${string}/explain` ? { step?: string | null | false; } :
	A extends `/runs/${string}/journal` ? { after?: number | string | null | false; limit?: number | string | null | false; raw?: boolean | "true" | "false" | null | false; as?: string | null | false; } :
	A extends `/runs/${string}/log` ? { as?: string | null | false; } :
	A extends `/runs/${string}/past` ? { seq?: number | string | null | false; time?: string | null | false; } :
	A extends `/runs/${string}/policy` ? {  } :
	A extends `/runs/${string}/result` ? { wait?: number | string | null | false; until_blocked?: boolean | "true" | "false" | null | false; } :
	A extends `/runs/${string}/rollback` ? {  } :
	A extends `/runs/${string}/steps` ? { as?: string | null | false; } :
	A extends `/runs/${string}/stream` ? { as?: string | null | false; } :
	A extends `/runs/${string}/streams` ? {  } :
	A extends `/tenants/${string}/quotas` ? {  } :
	A extends `/tenants/${string}/signing` ? {  } :
	A extends `/triggers/${string}/next` ? { limit?: number | string | null | false; after?: string | null | false; } :
	A extends `/work/definitions/${string}` ? {  } :
	A extends `/workflows/${string}/compare` ? { old?: number | string | null | false; new?: number | string | null | false; live?: boolean | "true" | "false" | null | false; } :
	A extends `/workflows/${string}/simulation` ? { version?: number | string | null | false; } :
	A extends `/workflows/${string}/unserved` ? { version?: number | string | null | false; } :
	A extends "/oidc/callback" ? { code?: string | null | false; state?: string | null | false; error?: string | null | false; error_description?: string | null | false; iss?: string | null | false; session_state?: string | null | false; } :
	A extends "/oidc/login" ? {  } :
	A extends "/outbox/history" ? { limit?: number | string | null | false; } :
	A extends "/outbox/status" ? {  } :
	A extends "/work/network" ? {  } :
	A extends "/work/queues" ? {  } :
	A extends `/jobs/${string}` ? {  } :
	A extends `/limits/${string}` ? { key?: string | null | false; after?: string | null | false; limit?: number | string | null | false; } :
	A extends `/policies/${string}` ? {  } :
	A extends `/runs/${string}` ? { as?: string | null | false; } :
	A extends `/schemas/${string}` ? {  } :
	A extends `/triggers/${string}` ? { firings?: number | string | null | false; } :
	A extends `/users/${string}` ? {  } :
	A extends `/workflows/${string}` ? {  } :
	A extends "/api-keys" ? { owner?: string | null | false; cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/approvals" ? { mine?: boolean | "true" | "false" | null | false; late?: boolean | "true" | "false" | null | false; cursor?: string | null | false; limit?: number | string | null | false; by?: string | null | false; } :
	A extends "/audit" ? { actor?: string | null | false; target?: string | null | false; operation?: string | null | false; outcome?: "done" | "failed" | "refused" | null | false; key?: string | null | false; since?: string | null | false; until?: string | null | false; cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/conversations" ? { after?: string | null | false; limit?: number | string | null | false; } :
	A extends "/delegations" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/errors" ? { window?: string | null | false; workflow?: string | null | false; } :
	A extends "/explain" ? { what: string | null | false; step?: string | null | false; } :
	A extends "/healthz" ? {  } :
	A extends "/history" ? { name?: string | null | false; after?: number | string | null | false; limit?: number | string | null | false; } :
	A extends "/hooks" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/jobs" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/limits" ? {  } :
	A extends "/mailbox" ? { business_key?: string | null | false; limit?: number | string | null | false; } :
	A extends "/metrics" ? {  } :
	A extends "/network" ? { history?: boolean | "true" | "false" | null | false; } :
	A extends "/openapi.json" ? {  } :
	A extends "/outbox" ? { state?: "dead" | "ready" | "sending" | null | false; sink?: string | null | false; run_id?: string | null | false; cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/pauses" ? {  } :
	A extends "/policies" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/quarantine" ? { history?: boolean | "true" | "false" | null | false; } :
	A extends "/readyz" ? {  } :
	A extends "/resources" ? {  } :
	A extends "/runs" ? { state?: (RunState)[] | null | false; workflow?: string | null | false; business_key?: string | null | false; correlation_id?: string | null | false; label?: (string)[] | null | false; since?: string | null | false; until?: string | null | false; error?: string | null | false; text?: string | null | false; roots?: boolean | "true" | "false" | null | false; cursor?: string | null | false; limit?: number | string | null | false; as?: string | null | false; } :
	A extends "/schemas" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/session" ? {  } :
	A extends "/sinks" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/slots" ? {  } :
	A extends "/statistics" ? { window?: string | null | false; } :
	A extends "/status" ? { window?: string | null | false; } :
	A extends "/stream" ? {  } :
	A extends "/tenants" ? {  } :
	A extends "/triggers" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/users" ? { cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/version" ? {  } :
	A extends "/workers" ? { live?: boolean | "true" | "false" | null | false; cursor?: string | null | false; limit?: number | string | null | false; } :
	A extends "/workflows" ? { name?: string | null | false; cursor?: string | null | false; limit?: number | string | null | false; } :
	any;

type Body<A extends string> =
	A extends `/as/run/runs/${string}/approve` ? {} :
	A extends `/as/run/runs/${string}/cancel` ? {} :
	A extends `/runs/${string}/outbox/${string}/drop` ? { event: string; reason: string; by?: string | null; } :
	A extends `/runs/${string}/steps/${string}/complete` ? CompletionBody | ManualSignal :
	A extends `/runs/${string}/steps/${string}/decide` ? { choice: "complete" | "fail" | "retry" | "skip"; reason?: string; output?: any; by?: string | null; } :
	A extends `/runs/${string}/steps/${string}/token` ? { reason: string; by?: string | null; } :
	A extends `/triggers/${string}/backfills/${string}/stop` ? { by?: string | null; } | null :
	A extends `/workflows/${string}/versions/${string}/restore` ? { by?: string | null; } | null :
	A extends `/workflows/${string}/versions/${string}/withdraw` ? { reason: string; by?: string | null; } :
	A extends `/work/workers/${string}/calls` ? CallsRequest :
	A extends `/work/workers/${string}/checkpoint` ? CheckpointRequest :
	A extends `/work/workers/${string}/checkpoints` ? CheckpointsRequest :
	A extends `/work/workers/${string}/claim` ? ClaimRequest :
	A extends `/work/workers/${string}/drain` ? {} :
	A extends `/work/workers/${string}/evidence` ? EvidenceRequest :
	A extends `/work/workers/${string}/heartbeat` ? Heartbeat | null :
	A extends `/work/workers/${string}/inputs` ? InputsRequest :
	A extends `/work/workers/${string}/renew` ? RenewRequest :
	A extends `/work/workers/${string}/report` ? ReportRequest :
	A extends `/work/workers/${string}/streams` ? StreamsRequest :
	A extends "/as/run/runs" ? NewTemplateRun | null :
	A extends "/conversations/items/read" ? { conversation: string; prefix?: string; keys?: (string)[] | null; past?: ItemPlace | null; newest?: boolean; limit?: number; } :
	A extends "/conversations/items/remove" ? { conversation: string; prefixes?: (string)[]; place?: ItemPlace | null; } :
	A extends "/pauses/queue/resume" ? { queue: string; by?: string | null; } :
	A extends "/pauses/tenant/resume" ? { by?: string | null; } | null :
	A extends "/pauses/workflow/resume" ? { workflow: string; by?: string | null; } :
	A extends `/api-keys/${string}/rotate` ? { overlap?: string; by?: string | null; } | null :
	A extends `/hooks/${string}/test` ? { headers: Record<string, string>; body: string; } :
	A extends `/jobs/${string}/stop` ? { by?: string | null; } | null :
	A extends `/migrations/${string}/preview` ? { to: number; of?: number | null; by?: string | null; } :
	A extends `/runs/${string}/approve` ? { step?: string | null; comment?: string; evidence?: (string)[]; for?: string | null; by?: string | null; } | null :
	A extends `/runs/${string}/cancel` ? { compensate?: boolean; reason?: string; by?: string | null; } | null :
	A extends `/runs/${string}/continuation-preview` ? { how: "fork" | "rerun" | "retry"; start?: string | null; input?: any; version?: number | null; by?: string | null; } :
	A extends `/runs/${string}/escalate` ? { step?: string | null; reason: string; for?: string | null; by?: string | null; } :
	A extends `/runs/${string}/fork` ? { start: string; input?: any; version?: number | null; by?: string | null; } :
	A extends `/runs/${string}/freeze` ? { reason: string; by?: string | null; } :
	A extends `/runs/${string}/messages` ? NewMessage :
	A extends `/runs/${string}/migrate` ? { to: number; reason?: string; by?: string | null; } :
	A extends `/runs/${string}/migration-preview` ? { to: number; by?: string | null; } :
	A extends `/runs/${string}/notes` ? { note: string; step?: string | null; by?: string | null; } :
	A extends `/runs/${string}/pause` ? { reason?: string; by?: string | null; } | null :
	A extends `/runs/${string}/quarantine` ? { reason: string; by?: string | null; } :
	A extends `/runs/${string}/reassign` ? { step: string; to?: (string)[]; fail?: boolean; reason: string; by?: string | null; } :
	A extends `/runs/${string}/reject` ? { step?: string | null; comment?: string; evidence?: (string)[]; for?: string | null; by?: string | null; } | null :
	A extends `/runs/${string}/release` ? { reason: string; by?: string | null; } :
	A extends `/runs/${string}/request-changes` ? { step?: string | null; comment: string; for?: string | null; by?: string | null; } :
	A extends `/runs/${string}/rerun` ? { input?: any; by?: string | null; } | null :
	A extends `/runs/${string}/rerun-from` ? { start: string; input?: any; version?: number | null; by?: string | null; } :
	A extends `/runs/${string}/resume` ? { reason?: string; by?: string | null; } | null :
	A extends `/runs/${string}/retry` ? { version?: number | null; by?: string | null; } | null :
	A extends `/runs/${string}/start` ? { by?: string | null; } | null :
	A extends `/sinks/${string}/test` ? {} :
	A extends `/triggers/${string}/backfills` ? { since: string; until: string; at_once?: number; dry_run?: boolean; by?: string | null; } :
	A extends `/triggers/${string}/fire` ? { payload?: any; key?: string | null; by?: string | null; } | null :
	A extends `/triggers/${string}/pause` ? { by?: string | null; } | null :
	A extends `/triggers/${string}/resume` ? { by?: string | null; } | null :
	A extends `/users/${string}/disable` ? { by?: string | null; } | null :
	A extends `/users/${string}/enable` ? { by?: string | null; } | null :
	A extends `/users/${string}/grant` ? { role?: string | null; group?: string | null; to_group?: boolean; valid_from?: string | null; valid_to?: string | null; by?: string | null; } | null :
	A extends `/users/${string}/revoke` ? { role?: string | null; group?: string | null; from_group?: boolean; by?: string | null; } | null :
	A extends "/conversations/items" ? { conversation: string; items: (NewItem)[]; } :
	A extends "/conversations/prune" ? { before: string; } :
	A extends "/delegations/end" ? { delegator: string; to: string; by?: string | null; } :
	A extends "/limits/clear" ? { name: string; key?: string | null; reason?: string; by?: string | null; } :
	A extends "/limits/set" ? { name: string; running?: number | null; rate?: string | null; burst?: number; key?: string | null; reason?: string; by?: string | null; } :
	A extends "/outbox/redrive" ? { run_id?: string | null; sink?: string | null; reason: string; by?: string | null; } :
	A extends "/pauses/queue" ? { queue: string; reason?: string; by?: string | null; } :
	A extends "/pauses/tenant" ? { reason?: string; by?: string | null; } | null :
	A extends "/pauses/workflow" ? { workflow: string; reason?: string; by?: string | null; } :
	A extends "/policies/off" ? { by?: string | null; } | null :
	A extends "/resources/clear" ? { resource: string; by?: string | null; } :
	A extends "/runs/bulk" ? { action: "cancel" | "pause" | "rerun" | "resume"; where?: Where | null; runs?: (string)[] | null; compensate?: boolean; unfinished?: boolean; reason?: string; dry_run?: boolean; by?: string | null; } :
	A extends "/session/link" ? LinkCode :
	A extends "/slots/clear" ? { workflow?: string | null; by?: string | null; } | null :
	A extends "/work/workers" ? Registration :
	A extends "/workflows/check" ? any :
	A extends `/hooks/${string}` ? any :
	A extends `/migrations/${string}` ? { to: number; of?: number | null; reason?: string; by?: string | null; } :
	A extends "/api-keys" ? { owner: string; scopes: (Scope)[]; expires_at?: string | null; expires_in?: string | null; max_concurrent_runs?: number | null; max_requests_per_min?: number | null; queues?: (string)[] | null; handlers?: (string)[] | null; by?: string | null; } :
	A extends "/delegations" ? { delegator: string; to: string; valid_from?: string | null; valid_to?: string | null; open_ended?: boolean; reason?: string; by?: string | null; } :
	A extends "/events" ? { event: string; payload?: any; id?: string | null; correlation_id?: string | null; by?: string | null; } :
	A extends "/hooks" ? { hook: Record<string, any>; by?: string | null; } :
	A extends "/messages" ? KeyedMessage :
	A extends "/policies" ? { policy: Record<string, any>; by?: string | null; } :
	A extends "/resources" ? { resource: string; most: number; by?: string | null; } :
	A extends "/runs" ? NewRunBody :
	A extends "/session" ? SignIn :
	A extends "/sinks" ? { name: string; kind: string; on?: (string)[]; options?: Record<string, any>; events?: ("dialect" | "emitted" | "endings" | "transitions" | "workers")[]; replace?: boolean; by?: string | null; } :
	A extends "/slots" ? { most: number; workflow?: string | null; by?: string | null; } :
	A extends "/tenants" ? { name: string; vouching?: "allowed" | "refused"; by?: string | null; } :
	A extends "/triggers" ? { name: string; workflow: string; by?: string | null; trigger: Record<string, any>; } :
	A extends "/users" ? { name: string; kind?: "service" | "user"; display?: string; by?: string | null; } :
	A extends "/workflows" ? Record<string, any> :
	any;

}
