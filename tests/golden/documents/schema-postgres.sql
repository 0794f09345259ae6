-- columns
adoptions.no integer not null
adoptions.owned integer not null
adoptions.run_id uuid not null
adoptions.source_run uuid not null
adoptions.source_step text not null
adoptions.tenant text not null
api_keys.created_at bigint not null
api_keys.created_by text not null
api_keys.expires_at bigint
api_keys.handlers text
api_keys.id text not null
api_keys.lineage text
api_keys.max_concurrent_runs integer
api_keys.max_requests_per_min integer
api_keys.owner text not null
api_keys.queues text
api_keys.replaces text
api_keys.revoked_at bigint
api_keys.revoked_by text
api_keys.scopes text not null
api_keys.secret_hash text not null
api_keys.tenant text not null
attempt_evidence.body text not null
attempt_evidence.fence integer not null
attempt_evidence.no integer not null
attempt_evidence.run_id uuid not null
attempt_evidence.tenant text not null
attempt_view.category text
attempt_view.cost jsonb
attempt_view.ended_at timestamp with time zone
attempt_view.error text
attempt_view.fence integer
attempt_view.name text
attempt_view.no integer
attempt_view.number integer
attempt_view.output jsonb
attempt_view.run_id uuid
attempt_view.seconds numeric
attempt_view.started_at timestamp with time zone
attempt_view.state text
attempt_view.tenant text
attempt_view.worker text
attempts.category text
attempts.cost bytea
attempts.ended_at bigint not null
attempts.error text
attempts.fence integer not null
attempts.no integer not null
attempts.number integer not null
attempts.output bytea
attempts.run_id uuid not null
attempts.started_at bigint not null
attempts.state text not null
attempts.tenant text not null
attempts.worker integer not null
audit.actor text not null
audit.address text
audit.at bigint not null
audit.code text
audit.hash text
audit.id text not null
audit.key text
audit.operation text not null
audit.outcome text not null
audit.request_id text
audit.seq bigint
audit.target text not null
audit.tenant text not null
audit.vouched_by text
audit_heads.anchor text not null
audit_heads.forgotten bigint not null
audit_heads.hash text not null
audit_heads.seq bigint not null
audit_heads.tenant text not null
backfills.at_once integer not null
backfills.created_at bigint not null
backfills.created_by text not null
backfills.cursor_at bigint not null
backfills.ended_at bigint
backfills.id text not null
backfills.refused integer not null
backfills.since_at bigint not null
backfills.skipped integer not null
backfills.started integer not null
backfills.state text not null
backfills.tenant text not null
backfills.trigger_name text not null
backfills.until_at bigint not null
business_keys.key text not null
business_keys.run_id uuid not null
business_keys.tenant text not null
checkpoints.at bigint not null
checkpoints.fence integer not null
checkpoints.name text not null
checkpoints.no integer not null
checkpoints.run_id uuid not null
checkpoints.seq bigint not null
checkpoints.tenant text not null
checkpoints.value bytea not null
children.activation bigint not null
children.category text
children.child_id uuid not null
children.ended_at bigint
children.error text
children.mode text not null
children.no integer not null
children.outcome text
children.recall text
children.recalled_at bigint
children.requested_at bigint not null
children.run_id uuid not null
children.started_at bigint
children.state text not null
children.tenant text not null
children.todo text
children.todo_at bigint
children.undoes uuid
children.version integer not null
children.workflow text not null
conversation_items.at bigint not null
conversation_items.conversation text not null
conversation_items.key text not null
conversation_items.ordinal bigint not null
conversation_items.tenant text not null
conversation_items.value bytea not null
conversations.changed_at bigint not null
conversations.items bigint not null
conversations.name text not null
conversations.size_bytes bigint not null
conversations.tenant text not null
decisions.activation bigint not null
decisions.at bigint not null
decisions.comment text not null
decisions.decision text not null
decisions.delegation_id text
decisions.evidence bytea
decisions.held_roles text not null
decisions.key_id text
decisions.level integer not null
decisions.no integer not null
decisions.on_behalf_of text
decisions.person text not null
decisions.run_id uuid not null
decisions.shown_digest text
decisions.tenant text not null
decisions.vouched_by text
definitions.dialect text not null
definitions.digest text not null
definitions.document bytea not null
definitions.id integer not null
definitions.name text not null
definitions.published_at bigint not null
definitions.published_by text not null
definitions.queues text not null
definitions.tenant text not null
definitions.version integer not null
delegations.delegate text not null
delegations.delegator text not null
delegations.granted_at bigint not null
delegations.granted_by text not null
delegations.id text not null
delegations.reason text not null
delegations.revoked_at bigint
delegations.revoked_by text
delegations.tenant text not null
delegations.valid_from bigint
delegations.valid_to bigint
deliveries.attempts integer not null default 0
deliveries.dead_at bigint
deliveries.error text
deliveries.fence integer not null default 0
deliveries.holder text
deliveries.last bigint not null
deliveries.lease_until bigint
deliveries.ready_at bigint
deliveries.run_id uuid not null
deliveries.sent bigint not null
deliveries.sent_number integer not null
deliveries.sink text not null
deliveries.takes integer not null
deliveries.target bytea
deliveries.tenant text not null
delivery_actions.action text not null
delivery_actions.actor text not null
delivery_actions.at bigint not null
delivery_actions.id bigint not null
delivery_actions.number integer
delivery_actions.reason text not null
delivery_actions.run_id uuid
delivery_actions.seq bigint
delivery_actions.sink text not null
delivery_actions.tenant text not null
firings.backfill text
firings.depth integer not null
firings.due_at bigint not null
firings.given bytea
firings.made_at bigint not null
firings.moment text not null
firings.reason text
firings.run_id uuid
firings.source text
firings.state text not null
firings.tenant text not null
firings.trigger_name text not null
firings.watched integer not null
gates.activation bigint not null
gates.closed_at bigint
gates.due_at bigint
gates.level integer not null
gates.no integer not null
gates.opened_at bigint not null
gates.outcome text
gates.run_id uuid not null
gates.shown bytea not null
gates.shown_digest text not null
gates.tenant text not null
idempotency_keys.fingerprint text not null
idempotency_keys.key text not null
idempotency_keys.operation text not null
idempotency_keys.run_id uuid not null
idempotency_keys.scope text not null default ''::text
idempotency_keys.tenant text not null
job_runs.detail text
job_runs.job_id text not null
job_runs.new_run_id text
job_runs.run_id uuid not null
job_runs.state text not null
job_runs.tenant text not null
jobs.action text not null
jobs.api_key text
jobs.created_at bigint not null
jobs.created_by text not null
jobs.digest bytea not null
jobs.ended_at bigint
jobs.holder text
jobs.id text not null
jobs.idempotency_key text
jobs.lease_until bigint not null
jobs.options bytea not null
jobs.scope text not null default ''::text
jobs.seq bigint not null
jobs.state text not null
jobs.tenant text not null
jobs.vouched_by text
journal.at bigint not null
journal.body bytea not null
journal.hash bytea not null
journal.run_id uuid not null
journal.seq bigint not null
journal.tenant text not null
journal.xact bigint default ((pg_current_xact_id())::text)::bigint
journal_20261116.at bigint not null
journal_20261116.body bytea not null
journal_20261116.hash bytea not null
journal_20261116.run_id uuid not null
journal_20261116.seq bigint not null
journal_20261116.tenant text not null
journal_20261116.xact bigint default ((pg_current_xact_id())::text)::bigint
journal_20261123.at bigint not null
journal_20261123.body bytea not null
journal_20261123.hash bytea not null
journal_20261123.run_id uuid not null
journal_20261123.seq bigint not null
journal_20261123.tenant text not null
journal_20261123.xact bigint default ((pg_current_xact_id())::text)::bigint
journal_20261130.at bigint not null
journal_20261130.body bytea not null
journal_20261130.hash bytea not null
journal_20261130.run_id uuid not null
journal_20261130.seq bigint not null
journal_20261130.tenant text not null
journal_20261130.xact bigint default ((pg_current_xact_id())::text)::bigint
journal_default.at bigint not null
journal_default.body bytea not null
journal_default.hash bytea not null
journal_default.run_id uuid not null
journal_default.seq bigint not null
journal_default.tenant text not null
journal_default.xact bigint default ((pg_current_xact_id())::text)::bigint
journal_view.actor text
journal_view.at timestamp with time zone
journal_view.attempt integer
journal_view.category text
journal_view.detail jsonb
journal_view.error text
journal_view.event text
journal_view.from_state text
journal_view.place integer
journal_view.run_id uuid
journal_view.seq bigint
journal_view.step text
journal_view.tenant text
journal_view.to_state text
journal_view.trigger text
limit_holds.fence integer not null
limit_holds.held_at bigint not null
limit_holds.key text not null
limit_holds.name text not null
limit_holds.no integer not null
limit_holds.run_id uuid not null
limit_holds.seq bigint not null
limit_holds.step text not null
limit_holds.tenant text not null
limit_holds.weight integer not null
limit_keys.freed text not null
limit_keys.held bigint not null
limit_keys.key text not null
limit_keys.name text not null
limit_keys.seq bigint not null
limit_keys.tat bigint not null
limit_keys.tenant text not null
limit_keys.used_at bigint not null
limit_lines.due_at bigint
limit_lines.key text not null
limit_lines.name text not null
limit_lines.queue bigint not null
limit_lines.tenant text not null
limit_waits.asked_at bigint not null
limit_waits.key text not null
limit_waits.name text not null
limit_waits.no integer not null
limit_waits.priority integer not null
limit_waits.queue bigint not null
limit_waits.run_id uuid not null
limit_waits.tenant text not null
mailbox.arrived_at bigint not null
mailbox.expires_at bigint not null
mailbox.forget_at bigint not null
mailbox.id text not null
mailbox.key text not null
mailbox.key_id text
mailbox.name text not null
mailbox.number bigint not null
mailbox.payload bytea
mailbox.run_id uuid
mailbox.sender text not null
mailbox.tenant text not null
mailbox.vouched_by text
memberships.granted_at bigint not null
memberships.granted_by text not null
memberships.id text not null
memberships.kind text not null
memberships.name text not null
memberships.revoked_at bigint
memberships.revoked_by text
memberships.subject text not null
memberships.subject_kind text not null
memberships.tenant text not null
memberships.valid_from bigint
memberships.valid_to bigint
messages.arrived_at bigint not null
messages.consumed_by integer
messages.id text not null
messages.name text not null
messages.number bigint not null
messages.payload bytea not null
messages.run_id uuid not null
messages.sender text not null
messages.tenant text not null
migrations.applied_at bigint not null
migrations.checksum text not null
migrations.name text not null
migrations.version integer not null
outbox.created_at bigint not null
outbox.name text not null
outbox.number integer not null
outbox.payload bytea not null
outbox.run_id uuid not null
outbox.seq bigint not null
outbox.tenant text not null
payload_chunks.body bytea not null
payload_chunks.digest text not null
payload_chunks.no integer not null
payload_chunks.run_id uuid not null
payload_chunks.tenant text not null
people_journal.at bigint not null
people_journal.body bytea not null
people_journal.hash bytea not null
people_journal.seq bigint not null
people_journal.subject text not null
people_journal.tenant text not null
policies.digest text not null
policies.document bytea not null
policies.name text not null
policies.published_at bigint not null
policies.published_by text not null
policies.revision integer not null
policies.tenant text not null
principals.created_at bigint not null
principals.created_by text not null
principals.disabled_at bigint
principals.disabled_by text
principals.display text not null
principals.folded text not null
principals.kind text not null
principals.name text not null
principals.tenant text not null
quarantine.id bigint not null
quarantine.quarantined_at bigint not null
quarantine.quarantined_by text not null
quarantine.reason text not null
quarantine.release_reason text
quarantine.released_at bigint
quarantine.released_by text
quarantine.run_id uuid not null
quarantine.tenant text not null
queues.id integer not null
queues.spec text not null
queues.tenant text not null
quota_runs.run_id uuid not null
quota_runs.scope text not null
quota_runs.taken_at bigint not null
quota_runs.tenant text not null
quota_scopes.scope text not null
quota_scopes.tenant text not null
resource_holds.fence integer not null
resource_holds.held_at bigint not null
resource_holds.mode text not null
resource_holds.no integer not null
resource_holds.resource text not null
resource_holds.run_id uuid not null
resource_holds.step text not null
resource_holds.tenant text not null
resource_holds.units bigint not null
run_details.asked_before bytea
run_details.business_key text
run_details.correlation_id text not null
run_details.created_at bigint not null
run_details.created_by text not null
run_details.dialect text not null
run_details.input bytea not null
run_details.labels bytea
run_details.policy_revision integer
run_details.rerun_of uuid
run_details.run_id uuid not null
run_details.tenant text not null
run_details.version integer not null
run_details.workflow text not null
run_view.business_key text
run_view.category text
run_view.cause text
run_view.changed_at timestamp with time zone
run_view.correlation_id text
run_view.created_at timestamp with time zone
run_view.created_by text
run_view.due_at timestamp with time zone
run_view.ended_at timestamp with time zone
run_view.error text
run_view.held_steps integer
run_view.input jsonb
run_view.is_quarantined boolean
run_view.journal_entries bigint
run_view.labels jsonb
run_view.open_steps integer
run_view.priority integer
run_view.rerun_of uuid
run_view.rollback text
run_view.run_id uuid
run_view.started_at timestamp with time zone
run_view.state text
run_view.tenant text
run_view.unread_messages integer
run_view.version integer
run_view.workflow text
runs.business_key text
runs.category text
runs.cause text
runs.definition_id integer not null
runs.due_at bigint
runs.ended_at bigint
runs.error text
runs.failed integer not null
runs.head bytea not null
runs.id uuid not null
runs.inbox integer not null
runs.leased integer not null
runs.moved_at bigint not null
runs.moving integer not null
runs.open integer not null
runs.policy text
runs.priority integer not null
runs.rollback text not null
runs.seq bigint not null
runs.started_at bigint
runs.state text not null
runs.tenant text not null
runs.undoing integer not null
schemas.digest text not null
schemas.document bytea not null
schemas.published_at bigint not null
schemas.published_by text not null
schemas.ref text not null
schemas.tenant text not null
sessions.created_at bigint not null
sessions.ended_at bigint
sessions.expires_at bigint not null
sessions.id text not null
sessions.key text not null
sessions.owner text not null
sessions.secret_hash text not null
sessions.tenant text not null
settings.document bytea not null
settings.kind text not null
settings.name text not null
settings.revision integer not null
settings.saved_at bigint not null
settings.saved_by text not null
settings.tenant text not null
signed_heads.entries bigint not null
signed_heads.head bytea not null
signed_heads.key_id text not null
signed_heads.public_key text not null
signed_heads.run_id uuid not null
signed_heads.signature text not null
signed_heads.signed_at bigint not null
signed_heads.tenant text not null
sinks.created_at bigint not null
sinks.created_by text not null
sinks.kind text not null
sinks.name text not null
sinks.options bytea not null
sinks.patterns text not null
sinks.prefix text not null
sinks.takes integer not null
sinks.tenant text not null
slots.asked_at bigint not null
slots.granted_at bigint
slots.most integer
slots.priority integer not null
slots.run_id uuid not null
slots.tenant text not null
slots.workflow text not null
step_view.category text
step_view.claimed_at timestamp with time zone
step_view.due_at timestamp with time zone
step_view.error text
step_view.failed_attempts integer
step_view.fence integer
step_view.lost_attempts integer
step_view.name text
step_view.no integer
step_view.note jsonb
step_view.queue jsonb
step_view.ready_at timestamp with time zone
step_view.run_id uuid
step_view.state text
step_view.tenant text
step_view.unmet_dependencies integer
step_view.worker text
steps.attempts integer not null
steps.category text
steps.claimed_at bigint
steps.due_at bigint
steps.error text
steps.fence integer not null
steps.losses integer not null
steps.no integer not null
steps.note text
steps.priority integer not null
steps.queue integer not null
steps.ready_at bigint
steps.run_id uuid not null
steps.settled bigint
steps.state text not null
steps.tenant text not null
steps.unmet integer not null
steps.worker integer
stream_rows.after_fence integer
stream_rows.after_place integer
stream_rows.at bigint not null
stream_rows.body text not null
stream_rows.count integer not null
stream_rows.fence integer not null
stream_rows.name text not null
stream_rows.no integer not null
stream_rows.run_id uuid not null
stream_rows.seq bigint not null
stream_rows.start integer not null
stream_rows.tenant text not null
stream_rows.total bigint not null
tenants.created_at bigint not null
tenants.created_by text not null
tenants.name text not null
tenants.vouching text not null
triggers.created_at bigint not null
triggers.created_by text not null
triggers.cursor_at bigint
triggers.due_at bigint
triggers.kind text not null
triggers.name text not null
triggers.next_at bigint
triggers.paused_at bigint
triggers.paused_by text
triggers.removed_at bigint
triggers.seq bigint not null
triggers.spec bytea not null
triggers.tenant text not null
triggers.topic text
triggers.version integer
triggers.workflow text not null
worker_journal.at bigint not null
worker_journal.body bytea not null
worker_journal.hash bytea not null
worker_journal.seq bigint not null
worker_journal.tenant text not null
worker_journal.worker_id text not null
worker_reports.body text not null
worker_reports.reported_at bigint not null
worker_reports.tenant text not null
worker_reports.worker integer not null
worker_view.capabilities jsonb
worker_view.capacity integer
worker_view.heard_at timestamp with time zone
worker_view.incarnation integer
worker_view.no integer
worker_view.queues jsonb
worker_view.started_at timestamp with time zone
worker_view.state text
worker_view.tenant text
worker_view.worker text
workers.capabilities text not null
workers.capacity integer not null
workers.head bytea not null
workers.heard_at bigint not null
workers.id text not null
workers.incarnation integer not null
workers.no integer not null
workers.owner text
workers.queues text not null
workers.seq bigint not null
workers.started_at bigint not null
workers.state text not null
workers.tenant text not null

-- constraints
adoptions.adoption_of_another CHECK ((run_id <> source_run))
adoptions.adoptions_no_check CHECK ((no >= 0))
adoptions.adoptions_no_not_null NOT NULL no
adoptions.adoptions_owned_check CHECK ((owned = ANY (ARRAY[0, 1])))
adoptions.adoptions_owned_not_null NOT NULL owned
adoptions.adoptions_pkey PRIMARY KEY (tenant, run_id, no)
adoptions.adoptions_run_id_not_null NOT NULL run_id
adoptions.adoptions_source_run_not_null NOT NULL source_run
adoptions.adoptions_source_step_not_null NOT NULL source_step
adoptions.adoptions_tenant_not_null NOT NULL tenant
api_keys.api_keys_created_at_not_null NOT NULL created_at
api_keys.api_keys_created_by_not_null NOT NULL created_by
api_keys.api_keys_id_key UNIQUE (id)
api_keys.api_keys_id_not_null NOT NULL id
api_keys.api_keys_owner_not_null NOT NULL owner
api_keys.api_keys_pkey PRIMARY KEY (tenant, id)
api_keys.api_keys_scopes_not_null NOT NULL scopes
api_keys.api_keys_secret_hash_check CHECK ((length(secret_hash) = 64))
api_keys.api_keys_secret_hash_not_null NOT NULL secret_hash
api_keys.api_keys_tenant_not_null NOT NULL tenant
api_keys.key_end CHECK (((revoked_at IS NULL) = (revoked_by IS NULL)))
attempt_evidence.attempt_evidence_body_not_null NOT NULL body
attempt_evidence.attempt_evidence_fence_not_null NOT NULL fence
attempt_evidence.attempt_evidence_no_not_null NOT NULL no
attempt_evidence.attempt_evidence_pkey PRIMARY KEY (run_id, no, fence, tenant)
attempt_evidence.attempt_evidence_run_id_not_null NOT NULL run_id
attempt_evidence.attempt_evidence_tenant_not_null NOT NULL tenant
attempts.attempt_is_sound CHECK ((((state = 'succeeded'::text) AND (category IS NULL) AND (fence > 0) AND (number >= 0)) OR stepkeep_attempt_is_sound(state, category, fence, number)))
attempts.attempts_ended_at_not_null NOT NULL ended_at
attempts.attempts_fence_not_null NOT NULL fence
attempts.attempts_no_not_null NOT NULL no
attempts.attempts_number_not_null NOT NULL number
attempts.attempts_pkey PRIMARY KEY (run_id, no, fence, tenant)
attempts.attempts_run_id_not_null NOT NULL run_id
attempts.attempts_started_at_not_null NOT NULL started_at
attempts.attempts_state_not_null NOT NULL state
attempts.attempts_tenant_not_null NOT NULL tenant
attempts.attempts_worker_not_null NOT NULL worker
audit.audit_actor_not_null NOT NULL actor
audit.audit_at_not_null NOT NULL at
audit.audit_hash CHECK (((hash IS NULL) = (seq IS NULL)))
audit.audit_id_not_null NOT NULL id
audit.audit_operation_not_null NOT NULL operation
audit.audit_outcome CHECK ((outcome = ANY (ARRAY['done'::text, 'refused'::text, 'failed'::text])))
audit.audit_outcome_not_null NOT NULL outcome
audit.audit_pkey PRIMARY KEY (tenant, at, id)
audit.audit_seq CHECK ((seq > 0))
audit.audit_target_not_null NOT NULL target
audit.audit_tenant_not_null NOT NULL tenant
audit_heads.audit_head_hash CHECK ((length(hash) = 64))
audit_heads.audit_head_order CHECK ((seq >= forgotten))
audit_heads.audit_heads_anchor_not_null NOT NULL anchor
audit_heads.audit_heads_forgotten_not_null NOT NULL forgotten
audit_heads.audit_heads_hash_not_null NOT NULL hash
audit_heads.audit_heads_pkey PRIMARY KEY (tenant)
audit_heads.audit_heads_seq_not_null NOT NULL seq
audit_heads.audit_heads_tenant_not_null NOT NULL tenant
backfills.backfills_at_once_check CHECK ((at_once > 0))
backfills.backfills_at_once_not_null NOT NULL at_once
backfills.backfills_created_at_not_null NOT NULL created_at
backfills.backfills_created_by_not_null NOT NULL created_by
backfills.backfills_cursor_at_not_null NOT NULL cursor_at
backfills.backfills_id_not_null NOT NULL id
backfills.backfills_pkey PRIMARY KEY (tenant, id)
backfills.backfills_refused_not_null NOT NULL refused
backfills.backfills_since_at_not_null NOT NULL since_at
backfills.backfills_skipped_not_null NOT NULL skipped
backfills.backfills_started_not_null NOT NULL started
backfills.backfills_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'stopped'::text])))
backfills.backfills_state_not_null NOT NULL state
backfills.backfills_tenant_not_null NOT NULL tenant
backfills.backfills_trigger_name_not_null NOT NULL trigger_name
backfills.backfills_until_at_not_null NOT NULL until_at
business_keys.business_keys_key_not_null NOT NULL key
business_keys.business_keys_pkey PRIMARY KEY (tenant, key)
business_keys.business_keys_run_id_not_null NOT NULL run_id
business_keys.business_keys_tenant_not_null NOT NULL tenant
checkpoints.checkpoints_at_not_null NOT NULL at
checkpoints.checkpoints_fence_check CHECK ((fence > 0))
checkpoints.checkpoints_fence_not_null NOT NULL fence
checkpoints.checkpoints_name_not_null NOT NULL name
checkpoints.checkpoints_no_check CHECK ((no >= 0))
checkpoints.checkpoints_no_not_null NOT NULL no
checkpoints.checkpoints_pkey PRIMARY KEY (tenant, run_id, no, name)
checkpoints.checkpoints_run_id_not_null NOT NULL run_id
checkpoints.checkpoints_seq_not_null NOT NULL seq
checkpoints.checkpoints_tenant_not_null NOT NULL tenant
checkpoints.checkpoints_value_not_null NOT NULL value
children.child_category CHECK (((category IS NULL) OR (category = ANY (ARRAY['transient'::text, 'external'::text, 'timeout'::text, 'agent'::text, 'unknown'::text, 'validation'::text, 'governance'::text, 'auth'::text, 'conflict'::text, 'poison'::text]))))
children.child_end CHECK (((state = 'ended'::text) = (outcome IS NOT NULL)))
children.child_mode CHECK ((mode = ANY (ARRAY['awaited'::text, 'detached'::text])))
children.child_outcome CHECK (((outcome IS NULL) OR (outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text, 'rolled_back'::text]))))
children.child_recall CHECK ((((recall IS NULL) OR (recall = ANY (ARRAY['cancel'::text, 'undo'::text]))) AND ((recall IS NULL) = (recalled_at IS NULL))))
children.child_state CHECK ((state = ANY (ARRAY['requested'::text, 'started'::text, 'withdrawn'::text, 'refused'::text, 'ended'::text])))
children.child_todo CHECK ((((todo IS NULL) = (todo_at IS NULL)) AND
CASE todo
    WHEN 'start'::text THEN (state = 'requested'::text)
    WHEN 'cancel'::text THEN (state = 'started'::text)
    WHEN 'tell'::text THEN (state = ANY (ARRAY['withdrawn'::text, 'refused'::text, 'ended'::text]))
    ELSE (todo IS NULL)
END))
children.children_activation_check CHECK ((activation > 0))
children.children_activation_not_null NOT NULL activation
children.children_child_id_not_null NOT NULL child_id
children.children_mode_not_null NOT NULL mode
children.children_no_check CHECK ((no >= 0))
children.children_no_not_null NOT NULL no
children.children_pkey PRIMARY KEY (tenant, run_id, no, activation)
children.children_requested_at_not_null NOT NULL requested_at
children.children_run_id_not_null NOT NULL run_id
children.children_state_not_null NOT NULL state
children.children_tenant_not_null NOT NULL tenant
children.children_version_check CHECK ((version > 0))
children.children_version_not_null NOT NULL version
children.children_workflow_not_null NOT NULL workflow
conversation_items.conversation_items_at_not_null NOT NULL at
conversation_items.conversation_items_conversation_not_null NOT NULL conversation
conversation_items.conversation_items_key_not_null NOT NULL key
conversation_items.conversation_items_ordinal_check CHECK ((ordinal >= 0))
conversation_items.conversation_items_ordinal_not_null NOT NULL ordinal
conversation_items.conversation_items_pkey PRIMARY KEY (tenant, conversation, key, ordinal)
conversation_items.conversation_items_tenant_not_null NOT NULL tenant
conversation_items.conversation_items_value_not_null NOT NULL value
conversations.conversations_changed_at_not_null NOT NULL changed_at
conversations.conversations_items_check CHECK ((items >= 0))
conversations.conversations_items_not_null NOT NULL items
conversations.conversations_name_not_null NOT NULL name
conversations.conversations_pkey PRIMARY KEY (tenant, name)
conversations.conversations_size_bytes_check CHECK ((size_bytes >= 0))
conversations.conversations_size_bytes_not_null NOT NULL size_bytes
conversations.conversations_tenant_not_null NOT NULL tenant
decisions.decision_for_another CHECK (((on_behalf_of IS NULL) OR (on_behalf_of <> person)))
decisions.decisions_activation_check CHECK ((activation >= 0))
decisions.decisions_activation_not_null NOT NULL activation
decisions.decisions_at_not_null NOT NULL at
decisions.decisions_comment_not_null NOT NULL comment
decisions.decisions_decision_check CHECK ((decision = ANY (ARRAY['approved'::text, 'rejected'::text])))
decisions.decisions_decision_not_null NOT NULL decision
decisions.decisions_held_roles_not_null NOT NULL held_roles
decisions.decisions_level_check CHECK ((level >= 0))
decisions.decisions_level_not_null NOT NULL level
decisions.decisions_no_check CHECK ((no >= 0))
decisions.decisions_no_not_null NOT NULL no
decisions.decisions_person_not_null NOT NULL person
decisions.decisions_pkey PRIMARY KEY (tenant, run_id, no, activation, person)
decisions.decisions_run_id_not_null NOT NULL run_id
decisions.decisions_tenant_not_null NOT NULL tenant
definitions.definitions_dialect_not_null NOT NULL dialect
definitions.definitions_digest_not_null NOT NULL digest
definitions.definitions_document_not_null NOT NULL document
definitions.definitions_id_not_null NOT NULL id
definitions.definitions_name_not_null NOT NULL name
definitions.definitions_pkey PRIMARY KEY (id)
definitions.definitions_published_at_not_null NOT NULL published_at
definitions.definitions_published_by_not_null NOT NULL published_by
definitions.definitions_queues_not_null NOT NULL queues
definitions.definitions_tenant_name_version_key UNIQUE (tenant, name, version)
definitions.definitions_tenant_not_null NOT NULL tenant
definitions.definitions_version_not_null NOT NULL version
delegations.delegation_end CHECK (((revoked_at IS NULL) = (revoked_by IS NULL)))
delegations.delegation_to_another CHECK ((delegator <> delegate))
delegations.delegations_delegate_not_null NOT NULL delegate
delegations.delegations_delegator_not_null NOT NULL delegator
delegations.delegations_granted_at_not_null NOT NULL granted_at
delegations.delegations_granted_by_not_null NOT NULL granted_by
delegations.delegations_id_not_null NOT NULL id
delegations.delegations_pkey PRIMARY KEY (tenant, id)
delegations.delegations_reason_not_null NOT NULL reason
delegations.delegations_tenant_not_null NOT NULL tenant
deliveries.deliveries_attempts_not_null NOT NULL attempts
deliveries.deliveries_fence_not_null NOT NULL fence
deliveries.deliveries_last_not_null NOT NULL last
deliveries.deliveries_pkey PRIMARY KEY (tenant, run_id, sink)
deliveries.deliveries_run_id_not_null NOT NULL run_id
deliveries.deliveries_sent_not_null NOT NULL sent
deliveries.deliveries_sent_number_not_null NOT NULL sent_number
deliveries.deliveries_sink_not_null NOT NULL sink
deliveries.deliveries_takes_check CHECK (((takes >= 1) AND (takes <= 15)))
deliveries.deliveries_takes_not_null NOT NULL takes
deliveries.deliveries_tenant_not_null NOT NULL tenant
deliveries.delivery_counters CHECK ((LEAST(last, sent, (sent_number)::bigint, (attempts)::bigint, (fence)::bigint) >= 0))
deliveries.delivery_dead_is_not_due CHECK (((dead_at IS NULL) OR ((ready_at IS NULL) AND (lease_until IS NULL))))
deliveries.delivery_is_not_stranded CHECK (((last <= sent) OR (ready_at IS NOT NULL) OR (dead_at IS NOT NULL)))
deliveries.delivery_lease_is_due CHECK (((lease_until IS NULL) OR (ready_at IS NOT NULL)))
delivery_actions.delivery_actions_action_not_null NOT NULL action
delivery_actions.delivery_actions_actor_not_null NOT NULL actor
delivery_actions.delivery_actions_at_not_null NOT NULL at
delivery_actions.delivery_actions_id_not_null NOT NULL id
delivery_actions.delivery_actions_pkey PRIMARY KEY (id)
delivery_actions.delivery_actions_reason_not_null NOT NULL reason
delivery_actions.delivery_actions_sink_not_null NOT NULL sink
delivery_actions.delivery_actions_tenant_not_null NOT NULL tenant
firings.firings_depth_check CHECK ((depth >= 0))
firings.firings_depth_not_null NOT NULL depth
firings.firings_due_at_not_null NOT NULL due_at
firings.firings_made_at_not_null NOT NULL made_at
firings.firings_moment_not_null NOT NULL moment
firings.firings_pkey PRIMARY KEY (tenant, trigger_name, moment)
firings.firings_state_check CHECK ((state = ANY (ARRAY['awaiting'::text, 'waiting'::text, 'started'::text, 'skipped'::text, 'refused'::text])))
firings.firings_state_not_null NOT NULL state
firings.firings_tenant_not_null NOT NULL tenant
firings.firings_trigger_name_not_null NOT NULL trigger_name
firings.firings_watched_check CHECK ((watched = ANY (ARRAY[0, 1])))
firings.firings_watched_not_null NOT NULL watched
firings.started_firing_has_a_run CHECK (((state = 'started'::text) = (run_id IS NOT NULL)))
gates.gate_end CHECK (((closed_at IS NULL) = (outcome IS NULL)))
gates.gates_activation_check CHECK ((activation >= 0))
gates.gates_activation_not_null NOT NULL activation
gates.gates_level_check CHECK ((level >= 0))
gates.gates_level_not_null NOT NULL level
gates.gates_no_check CHECK ((no >= 0))
gates.gates_no_not_null NOT NULL no
gates.gates_opened_at_not_null NOT NULL opened_at
gates.gates_pkey PRIMARY KEY (tenant, run_id, no, activation)
gates.gates_run_id_not_null NOT NULL run_id
gates.gates_shown_digest_check CHECK ((length(shown_digest) = 64))
gates.gates_shown_digest_not_null NOT NULL shown_digest
gates.gates_shown_not_null NOT NULL shown
gates.gates_tenant_not_null NOT NULL tenant
idempotency_keys.idempotency_keys_fingerprint_not_null NOT NULL fingerprint
idempotency_keys.idempotency_keys_key_not_null NOT NULL key
idempotency_keys.idempotency_keys_operation_not_null NOT NULL operation
idempotency_keys.idempotency_keys_pkey PRIMARY KEY (tenant, operation, key, scope)
idempotency_keys.idempotency_keys_run_id_not_null NOT NULL run_id
idempotency_keys.idempotency_keys_scope_not_null NOT NULL scope
idempotency_keys.idempotency_keys_tenant_not_null NOT NULL tenant
job_runs.job_runs_job_id_not_null NOT NULL job_id
job_runs.job_runs_pkey PRIMARY KEY (tenant, job_id, run_id)
job_runs.job_runs_run_id_not_null NOT NULL run_id
job_runs.job_runs_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'done'::text, 'unchanged'::text, 'refused'::text])))
job_runs.job_runs_state_not_null NOT NULL state
job_runs.job_runs_tenant_not_null NOT NULL tenant
jobs.ended_job_has_a_time CHECK (((state = 'running'::text) = (ended_at IS NULL)))
jobs.jobs_action_check CHECK ((action = ANY (ARRAY['cancel'::text, 'rerun'::text, 'pause'::text, 'resume'::text, 'migrate'::text])))
jobs.jobs_action_not_null NOT NULL action
jobs.jobs_created_at_not_null NOT NULL created_at
jobs.jobs_created_by_not_null NOT NULL created_by
jobs.jobs_digest_not_null NOT NULL digest
jobs.jobs_id_not_null NOT NULL id
jobs.jobs_lease_until_not_null NOT NULL lease_until
jobs.jobs_options_not_null NOT NULL options
jobs.jobs_pkey PRIMARY KEY (tenant, id)
jobs.jobs_scope_not_null NOT NULL scope
jobs.jobs_seq_check CHECK ((seq >= 0))
jobs.jobs_seq_not_null NOT NULL seq
jobs.jobs_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'stopped'::text])))
jobs.jobs_state_not_null NOT NULL state
jobs.jobs_tenant_not_null NOT NULL tenant
journal.entry_is_sealed CHECK (((seq > 0) AND (length(hash) = 32)))
journal.journal_at_not_null NOT NULL at
journal.journal_body_not_null NOT NULL body
journal.journal_hash_not_null NOT NULL hash
journal.journal_pkey PRIMARY KEY (run_id, seq, tenant)
journal.journal_run_id_not_null NOT NULL run_id
journal.journal_seq_not_null NOT NULL seq
journal.journal_tenant_not_null NOT NULL tenant
journal_20261116.entry_is_sealed CHECK (((seq > 0) AND (length(hash) = 32)))
journal_20261116.journal_20261116_pkey PRIMARY KEY (run_id, seq, tenant)
journal_20261116.journal_at_not_null NOT NULL at
journal_20261116.journal_body_not_null NOT NULL body
journal_20261116.journal_hash_not_null NOT NULL hash
journal_20261116.journal_run_id_not_null NOT NULL run_id
journal_20261116.journal_seq_not_null NOT NULL seq
journal_20261116.journal_tenant_not_null NOT NULL tenant
journal_20261123.entry_is_sealed CHECK (((seq > 0) AND (length(hash) = 32)))
journal_20261123.journal_20261123_pkey PRIMARY KEY (run_id, seq, tenant)
journal_20261123.journal_at_not_null NOT NULL at
journal_20261123.journal_body_not_null NOT NULL body
journal_20261123.journal_hash_not_null NOT NULL hash
journal_20261123.journal_run_id_not_null NOT NULL run_id
journal_20261123.journal_seq_not_null NOT NULL seq
journal_20261123.journal_tenant_not_null NOT NULL tenant
journal_20261130.entry_is_sealed CHECK (((seq > 0) AND (length(hash) = 32)))
journal_20261130.journal_20261130_pkey PRIMARY KEY (run_id, seq, tenant)
journal_20261130.journal_at_not_null NOT NULL at
journal_20261130.journal_body_not_null NOT NULL body
journal_20261130.journal_hash_not_null NOT NULL hash
journal_20261130.journal_run_id_not_null NOT NULL run_id
journal_20261130.journal_seq_not_null NOT NULL seq
journal_20261130.journal_tenant_not_null NOT NULL tenant
journal_default.entry_is_sealed CHECK (((seq > 0) AND (length(hash) = 32)))
journal_default.journal_at_not_null NOT NULL at
journal_default.journal_body_not_null NOT NULL body
journal_default.journal_default_pkey PRIMARY KEY (run_id, seq, tenant)
journal_default.journal_hash_not_null NOT NULL hash
journal_default.journal_run_id_not_null NOT NULL run_id
journal_default.journal_seq_not_null NOT NULL seq
journal_default.journal_tenant_not_null NOT NULL tenant
limit_holds.limit_holds_fence_check CHECK ((fence > 0))
limit_holds.limit_holds_fence_not_null NOT NULL fence
limit_holds.limit_holds_held_at_not_null NOT NULL held_at
limit_holds.limit_holds_key_not_null NOT NULL key
limit_holds.limit_holds_name_not_null NOT NULL name
limit_holds.limit_holds_no_not_null NOT NULL no
limit_holds.limit_holds_pkey PRIMARY KEY (tenant, run_id, no, name)
limit_holds.limit_holds_run_id_not_null NOT NULL run_id
limit_holds.limit_holds_seq_not_null NOT NULL seq
limit_holds.limit_holds_step_not_null NOT NULL step
limit_holds.limit_holds_tenant_not_null NOT NULL tenant
limit_holds.limit_holds_weight_check CHECK ((weight > 0))
limit_holds.limit_holds_weight_not_null NOT NULL weight
limit_keys.limit_keys_freed_not_null NOT NULL freed
limit_keys.limit_keys_held_check CHECK ((held >= 0))
limit_keys.limit_keys_held_not_null NOT NULL held
limit_keys.limit_keys_key_not_null NOT NULL key
limit_keys.limit_keys_name_not_null NOT NULL name
limit_keys.limit_keys_pkey PRIMARY KEY (tenant, name, key)
limit_keys.limit_keys_seq_not_null NOT NULL seq
limit_keys.limit_keys_tat_not_null NOT NULL tat
limit_keys.limit_keys_tenant_not_null NOT NULL tenant
limit_keys.limit_keys_used_at_not_null NOT NULL used_at
limit_lines.limit_lines_key_not_null NOT NULL key
limit_lines.limit_lines_name_not_null NOT NULL name
limit_lines.limit_lines_pkey PRIMARY KEY (tenant, name, key, queue)
limit_lines.limit_lines_queue_not_null NOT NULL queue
limit_lines.limit_lines_tenant_not_null NOT NULL tenant
limit_waits.limit_waits_asked_at_not_null NOT NULL asked_at
limit_waits.limit_waits_key_not_null NOT NULL key
limit_waits.limit_waits_name_not_null NOT NULL name
limit_waits.limit_waits_no_not_null NOT NULL no
limit_waits.limit_waits_pkey PRIMARY KEY (tenant, run_id, no)
limit_waits.limit_waits_priority_not_null NOT NULL priority
limit_waits.limit_waits_queue_not_null NOT NULL queue
limit_waits.limit_waits_run_id_not_null NOT NULL run_id
limit_waits.limit_waits_tenant_not_null NOT NULL tenant
mailbox.mailbox_arrived_at_not_null NOT NULL arrived_at
mailbox.mailbox_check CHECK (((run_id IS NULL) OR (payload IS NULL)))
mailbox.mailbox_check1 CHECK ((forget_at >= expires_at))
mailbox.mailbox_expires_at_not_null NOT NULL expires_at
mailbox.mailbox_forget_at_not_null NOT NULL forget_at
mailbox.mailbox_id_not_null NOT NULL id
mailbox.mailbox_key_not_null NOT NULL key
mailbox.mailbox_name_not_null NOT NULL name
mailbox.mailbox_number_check CHECK ((number >= 0))
mailbox.mailbox_number_not_null NOT NULL number
mailbox.mailbox_pkey PRIMARY KEY (tenant, key, id)
mailbox.mailbox_sender_not_null NOT NULL sender
mailbox.mailbox_tenant_not_null NOT NULL tenant
memberships.membership_depth CHECK (((subject_kind = 'person'::text) OR (kind = 'role'::text)))
memberships.membership_end CHECK (((revoked_at IS NULL) = (revoked_by IS NULL)))
memberships.membership_kind CHECK ((kind = ANY (ARRAY['role'::text, 'group'::text])))
memberships.membership_subject_kind CHECK ((subject_kind = ANY (ARRAY['person'::text, 'group'::text])))
memberships.memberships_granted_at_not_null NOT NULL granted_at
memberships.memberships_granted_by_not_null NOT NULL granted_by
memberships.memberships_id_not_null NOT NULL id
memberships.memberships_kind_not_null NOT NULL kind
memberships.memberships_name_not_null NOT NULL name
memberships.memberships_pkey PRIMARY KEY (tenant, id)
memberships.memberships_subject_kind_not_null NOT NULL subject_kind
memberships.memberships_subject_not_null NOT NULL subject
memberships.memberships_tenant_not_null NOT NULL tenant
messages.messages_arrived_at_not_null NOT NULL arrived_at
messages.messages_id_not_null NOT NULL id
messages.messages_name_not_null NOT NULL name
messages.messages_number_not_null NOT NULL number
messages.messages_payload_not_null NOT NULL payload
messages.messages_pkey PRIMARY KEY (tenant, run_id, number)
messages.messages_run_id_not_null NOT NULL run_id
messages.messages_sender_not_null NOT NULL sender
messages.messages_tenant_not_null NOT NULL tenant
messages.messages_tenant_run_id_id_key UNIQUE (tenant, run_id, id)
migrations.migrations_applied_at_not_null NOT NULL applied_at
migrations.migrations_checksum_not_null NOT NULL checksum
migrations.migrations_name_not_null NOT NULL name
migrations.migrations_pkey PRIMARY KEY (version)
migrations.migrations_version_not_null NOT NULL version
outbox.outbox_created_at_not_null NOT NULL created_at
outbox.outbox_name_not_null NOT NULL name
outbox.outbox_number_not_null NOT NULL number
outbox.outbox_payload_not_null NOT NULL payload
outbox.outbox_pkey PRIMARY KEY (tenant, run_id, seq, number)
outbox.outbox_run_id_not_null NOT NULL run_id
outbox.outbox_seq_not_null NOT NULL seq
outbox.outbox_tenant_not_null NOT NULL tenant
payload_chunks.payload_chunks_body_not_null NOT NULL body
payload_chunks.payload_chunks_digest_check CHECK ((length(digest) = 64))
payload_chunks.payload_chunks_digest_not_null NOT NULL digest
payload_chunks.payload_chunks_no_check CHECK ((no >= 0))
payload_chunks.payload_chunks_no_not_null NOT NULL no
payload_chunks.payload_chunks_pkey PRIMARY KEY (run_id, digest, no, tenant)
payload_chunks.payload_chunks_run_id_not_null NOT NULL run_id
payload_chunks.payload_chunks_tenant_not_null NOT NULL tenant
people_journal.people_journal_at_not_null NOT NULL at
people_journal.people_journal_body_not_null NOT NULL body
people_journal.people_journal_hash_check CHECK ((length(hash) = 32))
people_journal.people_journal_hash_not_null NOT NULL hash
people_journal.people_journal_pkey PRIMARY KEY (tenant, seq)
people_journal.people_journal_seq_check CHECK ((seq > 0))
people_journal.people_journal_seq_not_null NOT NULL seq
people_journal.people_journal_subject_not_null NOT NULL subject
people_journal.people_journal_tenant_not_null NOT NULL tenant
policies.policies_digest_not_null NOT NULL digest
policies.policies_document_not_null NOT NULL document
policies.policies_name_not_null NOT NULL name
policies.policies_pkey PRIMARY KEY (tenant, revision)
policies.policies_published_at_not_null NOT NULL published_at
policies.policies_published_by_not_null NOT NULL published_by
policies.policies_revision_check CHECK ((revision > 0))
policies.policies_revision_not_null NOT NULL revision
policies.policies_tenant_not_null NOT NULL tenant
principals.principal_end CHECK (((disabled_at IS NULL) = (disabled_by IS NULL)))
principals.principal_kind CHECK ((kind = ANY (ARRAY['user'::text, 'service'::text])))
principals.principals_created_at_not_null NOT NULL created_at
principals.principals_created_by_not_null NOT NULL created_by
principals.principals_display_not_null NOT NULL display
principals.principals_folded_not_null NOT NULL folded
principals.principals_kind_not_null NOT NULL kind
principals.principals_name_not_null NOT NULL name
principals.principals_pkey PRIMARY KEY (tenant, name)
principals.principals_tenant_folded_key UNIQUE (tenant, folded)
principals.principals_tenant_not_null NOT NULL tenant
quarantine.quarantine_id_not_null NOT NULL id
quarantine.quarantine_pkey PRIMARY KEY (id)
quarantine.quarantine_quarantined_at_not_null NOT NULL quarantined_at
quarantine.quarantine_quarantined_by_not_null NOT NULL quarantined_by
quarantine.quarantine_reason_not_null NOT NULL reason
quarantine.quarantine_run_id_not_null NOT NULL run_id
quarantine.quarantine_tenant_not_null NOT NULL tenant
quarantine.release_is_whole CHECK ((((released_at IS NULL) = (released_by IS NULL)) AND ((released_at IS NULL) = (release_reason IS NULL))))
queues.queues_id_not_null NOT NULL id
queues.queues_pkey PRIMARY KEY (id)
queues.queues_spec_not_null NOT NULL spec
queues.queues_tenant_not_null NOT NULL tenant
queues.queues_tenant_spec_key UNIQUE (tenant, spec)
quota_runs.quota_runs_pkey PRIMARY KEY (tenant, scope, run_id)
quota_runs.quota_runs_run_id_not_null NOT NULL run_id
quota_runs.quota_runs_scope_not_null NOT NULL scope
quota_runs.quota_runs_taken_at_not_null NOT NULL taken_at
quota_runs.quota_runs_tenant_not_null NOT NULL tenant
quota_scopes.quota_scopes_pkey PRIMARY KEY (tenant, scope)
quota_scopes.quota_scopes_scope_not_null NOT NULL scope
quota_scopes.quota_scopes_tenant_not_null NOT NULL tenant
resource_holds.resource_holds_check CHECK ((((units > 0) = (mode = 'units'::text)) AND (units >= 0)))
resource_holds.resource_holds_fence_check CHECK ((fence > 0))
resource_holds.resource_holds_fence_not_null NOT NULL fence
resource_holds.resource_holds_held_at_not_null NOT NULL held_at
resource_holds.resource_holds_mode_check CHECK ((mode = ANY (ARRAY['exclusive'::text, 'shared'::text, 'units'::text])))
resource_holds.resource_holds_mode_not_null NOT NULL mode
resource_holds.resource_holds_no_not_null NOT NULL no
resource_holds.resource_holds_pkey PRIMARY KEY (tenant, resource, run_id, no)
resource_holds.resource_holds_resource_not_null NOT NULL resource
resource_holds.resource_holds_run_id_not_null NOT NULL run_id
resource_holds.resource_holds_step_not_null NOT NULL step
resource_holds.resource_holds_tenant_not_null NOT NULL tenant
resource_holds.resource_holds_units_not_null NOT NULL units
run_details.run_details_correlation_id_not_null NOT NULL correlation_id
run_details.run_details_created_at_not_null NOT NULL created_at
run_details.run_details_created_by_not_null NOT NULL created_by
run_details.run_details_dialect_not_null NOT NULL dialect
run_details.run_details_input_not_null NOT NULL input
run_details.run_details_pkey PRIMARY KEY (tenant, run_id)
run_details.run_details_run_id_not_null NOT NULL run_id
run_details.run_details_tenant_not_null NOT NULL tenant
run_details.run_details_version_not_null NOT NULL version
run_details.run_details_workflow_not_null NOT NULL workflow
runs.run_is_sound CHECK ((((cause IS NULL) AND (policy IS NULL) AND (category IS NULL) AND (rollback = 'none'::text) AND (LEAST(seq, (open)::bigint, ((moving - leased))::bigint, (leased)::bigint, (failed)::bigint, (undoing)::bigint, (inbox)::bigint) >= 0) AND
CASE state
    WHEN 'running'::text THEN (ended_at IS NULL)
    WHEN 'succeeded'::text THEN ((ended_at IS NOT NULL) AND (due_at IS NULL) AND (GREATEST(open, moving, undoing) = 0))
    WHEN 'queued'::text THEN (ended_at IS NULL)
    ELSE false
END) OR stepkeep_run_is_sound(runs.*)))
runs.runs_definition_id_not_null NOT NULL definition_id
runs.runs_failed_not_null NOT NULL failed
runs.runs_head_not_null NOT NULL head
runs.runs_id_not_null NOT NULL id
runs.runs_inbox_not_null NOT NULL inbox
runs.runs_leased_not_null NOT NULL leased
runs.runs_moved_at_not_null NOT NULL moved_at
runs.runs_moving_not_null NOT NULL moving
runs.runs_open_not_null NOT NULL open
runs.runs_pkey PRIMARY KEY (tenant, id)
runs.runs_priority_not_null NOT NULL priority
runs.runs_rollback_not_null NOT NULL rollback
runs.runs_seq_not_null NOT NULL seq
runs.runs_state_not_null NOT NULL state
runs.runs_tenant_not_null NOT NULL tenant
runs.runs_undoing_not_null NOT NULL undoing
schemas.schemas_digest_check CHECK ((length(digest) = 64))
schemas.schemas_digest_not_null NOT NULL digest
schemas.schemas_document_not_null NOT NULL document
schemas.schemas_pkey PRIMARY KEY (tenant, ref)
schemas.schemas_published_at_not_null NOT NULL published_at
schemas.schemas_published_by_not_null NOT NULL published_by
schemas.schemas_ref_not_null NOT NULL ref
schemas.schemas_tenant_not_null NOT NULL tenant
sessions.sessions_created_at_not_null NOT NULL created_at
sessions.sessions_expires_at_not_null NOT NULL expires_at
sessions.sessions_id_key UNIQUE (id)
sessions.sessions_id_not_null NOT NULL id
sessions.sessions_key_not_null NOT NULL key
sessions.sessions_owner_not_null NOT NULL owner
sessions.sessions_pkey PRIMARY KEY (tenant, id)
sessions.sessions_secret_hash_check CHECK ((length(secret_hash) = 64))
sessions.sessions_secret_hash_not_null NOT NULL secret_hash
sessions.sessions_tenant_not_null NOT NULL tenant
settings.settings_document_not_null NOT NULL document
settings.settings_kind_not_null NOT NULL kind
settings.settings_name_not_null NOT NULL name
settings.settings_pkey PRIMARY KEY (tenant, kind, name, revision)
settings.settings_revision_check CHECK ((revision > 0))
settings.settings_revision_not_null NOT NULL revision
settings.settings_saved_at_not_null NOT NULL saved_at
settings.settings_saved_by_not_null NOT NULL saved_by
settings.settings_tenant_not_null NOT NULL tenant
signed_heads.signed_heads_entries_not_null NOT NULL entries
signed_heads.signed_heads_head_not_null NOT NULL head
signed_heads.signed_heads_key_id_not_null NOT NULL key_id
signed_heads.signed_heads_pkey PRIMARY KEY (run_id, key_id, tenant)
signed_heads.signed_heads_public_key_not_null NOT NULL public_key
signed_heads.signed_heads_run_id_not_null NOT NULL run_id
signed_heads.signed_heads_signature_not_null NOT NULL signature
signed_heads.signed_heads_signed_at_not_null NOT NULL signed_at
signed_heads.signed_heads_tenant_not_null NOT NULL tenant
sinks.sinks_created_at_not_null NOT NULL created_at
sinks.sinks_created_by_not_null NOT NULL created_by
sinks.sinks_kind_not_null NOT NULL kind
sinks.sinks_name_not_null NOT NULL name
sinks.sinks_options_not_null NOT NULL options
sinks.sinks_patterns_not_null NOT NULL patterns
sinks.sinks_pkey PRIMARY KEY (tenant, name)
sinks.sinks_prefix_not_null NOT NULL prefix
sinks.sinks_takes_check CHECK (((takes >= 1) AND (takes <= 31)))
sinks.sinks_takes_not_null NOT NULL takes
sinks.sinks_tenant_not_null NOT NULL tenant
slots.slots_asked_at_not_null NOT NULL asked_at
slots.slots_most_check CHECK (((most IS NULL) OR (most > 0)))
slots.slots_pkey PRIMARY KEY (tenant, run_id)
slots.slots_priority_not_null NOT NULL priority
slots.slots_run_id_not_null NOT NULL run_id
slots.slots_tenant_not_null NOT NULL tenant
slots.slots_workflow_not_null NOT NULL workflow
steps.step_is_sound CHECK ((((category IS NULL) AND (note IS NULL) AND (LEAST(no, fence, attempts, losses, unmet) >= 0) AND
CASE state
    WHEN 'running'::text THEN ((fence > 0) AND (COALESCE(ready_at, settled) IS NULL) AND (worker IS NOT NULL) AND (claimed_at IS NOT NULL) AND (due_at IS NOT NULL))
    WHEN 'succeeded'::text THEN ((settled IS NOT NULL) AND (COALESCE(ready_at, due_at, claimed_at, (worker)::bigint) IS NULL))
    WHEN 'pending'::text THEN (COALESCE(ready_at, due_at, claimed_at, settled, (worker)::bigint) IS NULL)
    WHEN 'ready'::text THEN ((ready_at IS NOT NULL) AND (queue > 0) AND (COALESCE(due_at, claimed_at, settled, (worker)::bigint) IS NULL))
    ELSE false
END) OR stepkeep_step_is_sound(steps.*)))
steps.steps_attempts_not_null NOT NULL attempts
steps.steps_fence_not_null NOT NULL fence
steps.steps_losses_not_null NOT NULL losses
steps.steps_no_not_null NOT NULL no
steps.steps_pkey PRIMARY KEY (run_id, no, tenant)
steps.steps_priority_not_null NOT NULL priority
steps.steps_queue_not_null NOT NULL queue
steps.steps_run_id_not_null NOT NULL run_id
steps.steps_state_not_null NOT NULL state
steps.steps_tenant_not_null NOT NULL tenant
steps.steps_unmet_not_null NOT NULL unmet
stream_rows.stream_rows_at_not_null NOT NULL at
stream_rows.stream_rows_body_not_null NOT NULL body
stream_rows.stream_rows_check CHECK (((after_fence IS NULL) OR ((start = 0) AND (after_fence < fence))))
stream_rows.stream_rows_check1 CHECK (((after_fence IS NULL) = (after_place IS NULL)))
stream_rows.stream_rows_count_check CHECK ((count > 0))
stream_rows.stream_rows_count_not_null NOT NULL count
stream_rows.stream_rows_fence_check CHECK ((fence > 0))
stream_rows.stream_rows_fence_not_null NOT NULL fence
stream_rows.stream_rows_name_not_null NOT NULL name
stream_rows.stream_rows_no_not_null NOT NULL no
stream_rows.stream_rows_pkey PRIMARY KEY (tenant, run_id, seq)
stream_rows.stream_rows_run_id_not_null NOT NULL run_id
stream_rows.stream_rows_seq_check CHECK ((seq > 0))
stream_rows.stream_rows_seq_not_null NOT NULL seq
stream_rows.stream_rows_start_check CHECK ((start >= 0))
stream_rows.stream_rows_start_not_null NOT NULL start
stream_rows.stream_rows_tenant_not_null NOT NULL tenant
stream_rows.stream_rows_total_check CHECK ((total > 0))
stream_rows.stream_rows_total_not_null NOT NULL total
tenants.tenant_vouching CHECK ((vouching = ANY (ARRAY['allowed'::text, 'refused'::text])))
tenants.tenants_created_at_not_null NOT NULL created_at
tenants.tenants_created_by_not_null NOT NULL created_by
tenants.tenants_name_not_null NOT NULL name
tenants.tenants_pkey PRIMARY KEY (name)
tenants.tenants_vouching_not_null NOT NULL vouching
triggers.triggers_created_at_not_null NOT NULL created_at
triggers.triggers_created_by_not_null NOT NULL created_by
triggers.triggers_kind_check CHECK ((kind = ANY (ARRAY['schedule'::text, 'event'::text, 'ended'::text])))
triggers.triggers_kind_not_null NOT NULL kind
triggers.triggers_name_not_null NOT NULL name
triggers.triggers_pkey PRIMARY KEY (tenant, name)
triggers.triggers_seq_check CHECK ((seq > 0))
triggers.triggers_seq_not_null NOT NULL seq
triggers.triggers_spec_not_null NOT NULL spec
triggers.triggers_tenant_not_null NOT NULL tenant
triggers.triggers_workflow_not_null NOT NULL workflow
worker_journal.worker_entry_is_sealed CHECK (((seq > 0) AND (length(hash) = 32)))
worker_journal.worker_journal_at_not_null NOT NULL at
worker_journal.worker_journal_body_not_null NOT NULL body
worker_journal.worker_journal_hash_not_null NOT NULL hash
worker_journal.worker_journal_pkey PRIMARY KEY (tenant, worker_id, seq)
worker_journal.worker_journal_seq_not_null NOT NULL seq
worker_journal.worker_journal_tenant_not_null NOT NULL tenant
worker_journal.worker_journal_worker_id_not_null NOT NULL worker_id
worker_reports.worker_reports_body_not_null NOT NULL body
worker_reports.worker_reports_pkey PRIMARY KEY (tenant, worker)
worker_reports.worker_reports_reported_at_not_null NOT NULL reported_at
worker_reports.worker_reports_tenant_not_null NOT NULL tenant
worker_reports.worker_reports_worker_not_null NOT NULL worker
workers.worker_counters CHECK ((LEAST((incarnation)::bigint, (capacity)::bigint, seq) >= 0))
workers.worker_state CHECK ((state = ANY (ARRAY['initializing'::text, 'idle'::text, 'busy'::text, 'unresponsive'::text, 'draining'::text, 'shutdown'::text])))
workers.workers_capabilities_not_null NOT NULL capabilities
workers.workers_capacity_not_null NOT NULL capacity
workers.workers_head_not_null NOT NULL head
workers.workers_heard_at_not_null NOT NULL heard_at
workers.workers_id_not_null NOT NULL id
workers.workers_incarnation_not_null NOT NULL incarnation
workers.workers_no_key UNIQUE (no)
workers.workers_no_not_null NOT NULL no
workers.workers_pkey PRIMARY KEY (tenant, id)
workers.workers_queues_not_null NOT NULL queues
workers.workers_seq_not_null NOT NULL seq
workers.workers_started_at_not_null NOT NULL started_at
workers.workers_state_not_null NOT NULL state
workers.workers_tenant_not_null NOT NULL tenant

-- indexes
CREATE INDEX adoptions_by_source ON stepkeep.adoptions USING btree (tenant, source_run)
CREATE UNIQUE INDEX adoptions_one_owner ON stepkeep.adoptions USING btree (tenant, source_run, source_step) WHERE (owned = 1)
CREATE UNIQUE INDEX adoptions_pkey ON stepkeep.adoptions USING btree (tenant, run_id, no)
CREATE UNIQUE INDEX api_keys_id_key ON stepkeep.api_keys USING btree (id)
CREATE UNIQUE INDEX api_keys_pkey ON stepkeep.api_keys USING btree (tenant, id)
CREATE UNIQUE INDEX attempt_evidence_pkey ON stepkeep.attempt_evidence USING btree (run_id, no, fence, tenant)
CREATE INDEX attempts_cost ON stepkeep.attempts USING btree (tenant, ended_at) WHERE (cost IS NOT NULL)
CREATE UNIQUE INDEX attempts_pkey ON stepkeep.attempts USING btree (run_id, no, fence, tenant)
CREATE INDEX audit_actor ON stepkeep.audit USING btree (tenant, actor, at, id)
CREATE UNIQUE INDEX audit_chain ON stepkeep.audit USING btree (tenant, seq) WHERE (seq IS NOT NULL)
CREATE UNIQUE INDEX audit_pkey ON stepkeep.audit USING btree (tenant, at, id)
CREATE INDEX audit_target ON stepkeep.audit USING btree (tenant, target, at, id)
CREATE INDEX audit_unchained ON stepkeep.audit USING btree (tenant, at) WHERE (seq IS NULL)
CREATE UNIQUE INDEX audit_heads_pkey ON stepkeep.audit_heads USING btree (tenant)
CREATE UNIQUE INDEX backfills_pkey ON stepkeep.backfills USING btree (tenant, id)
CREATE INDEX backfills_trigger ON stepkeep.backfills USING btree (tenant, trigger_name, created_at, id)
CREATE UNIQUE INDEX business_keys_pkey ON stepkeep.business_keys USING btree (tenant, key)
CREATE UNIQUE INDEX checkpoints_in_order ON stepkeep.checkpoints USING btree (tenant, run_id, no, seq, name)
CREATE UNIQUE INDEX checkpoints_pkey ON stepkeep.checkpoints USING btree (tenant, run_id, no, name)
CREATE UNIQUE INDEX children_child ON stepkeep.children USING btree (tenant, child_id)
CREATE UNIQUE INDEX children_pkey ON stepkeep.children USING btree (tenant, run_id, no, activation)
CREATE INDEX children_todo ON stepkeep.children USING btree (todo_at) WHERE (todo IS NOT NULL)
CREATE UNIQUE INDEX conversation_items_pkey ON stepkeep.conversation_items USING btree (tenant, conversation, key, ordinal)
CREATE INDEX conversations_by_age ON stepkeep.conversations USING btree (tenant, changed_at, name)
CREATE UNIQUE INDEX conversations_pkey ON stepkeep.conversations USING btree (tenant, name)
CREATE UNIQUE INDEX decisions_pkey ON stepkeep.decisions USING btree (tenant, run_id, no, activation, person)
CREATE UNIQUE INDEX definitions_pkey ON stepkeep.definitions USING btree (id)
CREATE UNIQUE INDEX definitions_tenant_name_version_key ON stepkeep.definitions USING btree (tenant, name, version)
CREATE INDEX delegations_delegate ON stepkeep.delegations USING btree (tenant, delegate)
CREATE UNIQUE INDEX delegations_pkey ON stepkeep.delegations USING btree (tenant, id)
CREATE INDEX deliveries_dead ON stepkeep.deliveries USING btree (tenant, sink, run_id) WHERE (dead_at IS NOT NULL)
CREATE INDEX deliveries_open ON stepkeep.deliveries USING btree (tenant, sink, run_id) WHERE ((ready_at IS NOT NULL) OR (dead_at IS NOT NULL))
CREATE UNIQUE INDEX deliveries_pkey ON stepkeep.deliveries USING btree (tenant, run_id, sink)
CREATE INDEX deliveries_ready ON stepkeep.deliveries USING btree (tenant, sink, ready_at) WHERE (ready_at IS NOT NULL)
CREATE UNIQUE INDEX delivery_actions_pkey ON stepkeep.delivery_actions USING btree (id)
CREATE INDEX delivery_actions_run ON stepkeep.delivery_actions USING btree (tenant, run_id, id) WHERE (run_id IS NOT NULL)
CREATE INDEX delivery_actions_tenant ON stepkeep.delivery_actions USING btree (tenant, id)
CREATE INDEX firings_awaiting ON stepkeep.firings USING btree (tenant, source) WHERE (state = 'awaiting'::text)
CREATE INDEX firings_due ON stepkeep.firings USING btree (tenant, trigger_name, due_at, moment)
CREATE INDEX firings_made ON stepkeep.firings USING btree (tenant, made_at) WHERE (watched = 0)
CREATE UNIQUE INDEX firings_pkey ON stepkeep.firings USING btree (tenant, trigger_name, moment)
CREATE INDEX firings_run ON stepkeep.firings USING btree (tenant, run_id) WHERE (run_id IS NOT NULL)
CREATE INDEX firings_watched ON stepkeep.firings USING btree (tenant, trigger_name, due_at) WHERE (watched = 1)
CREATE INDEX gates_open ON stepkeep.gates USING btree (tenant, run_id, no) WHERE (closed_at IS NULL)
CREATE UNIQUE INDEX gates_pkey ON stepkeep.gates USING btree (tenant, run_id, no, activation)
CREATE UNIQUE INDEX idempotency_keys_pkey ON stepkeep.idempotency_keys USING btree (tenant, operation, key, scope)
CREATE INDEX idempotency_keys_run ON stepkeep.idempotency_keys USING btree (tenant, run_id)
CREATE UNIQUE INDEX job_runs_pkey ON stepkeep.job_runs USING btree (tenant, job_id, run_id)
CREATE INDEX job_runs_waiting ON stepkeep.job_runs USING btree (tenant, job_id, run_id) WHERE (state = 'waiting'::text)
CREATE INDEX jobs_due ON stepkeep.jobs USING btree (lease_until) WHERE (state = 'running'::text)
CREATE UNIQUE INDEX jobs_key ON stepkeep.jobs USING btree (tenant, idempotency_key, scope) WHERE (idempotency_key IS NOT NULL)
CREATE UNIQUE INDEX jobs_pkey ON stepkeep.jobs USING btree (tenant, id)
CREATE UNIQUE INDEX journal_pkey ON ONLY stepkeep.journal USING btree (run_id, seq, tenant)
CREATE INDEX journal_xact ON ONLY stepkeep.journal USING brin (xact) WITH (autosummarize='on')
CREATE UNIQUE INDEX journal_20261116_pkey ON stepkeep.journal_20261116 USING btree (run_id, seq, tenant)
CREATE INDEX journal_20261116_xact_idx ON stepkeep.journal_20261116 USING brin (xact) WITH (autosummarize='on')
CREATE UNIQUE INDEX journal_20261123_pkey ON stepkeep.journal_20261123 USING btree (run_id, seq, tenant)
CREATE INDEX journal_20261123_xact_idx ON stepkeep.journal_20261123 USING brin (xact) WITH (autosummarize='on')
CREATE UNIQUE INDEX journal_20261130_pkey ON stepkeep.journal_20261130 USING btree (run_id, seq, tenant)
CREATE INDEX journal_20261130_xact_idx ON stepkeep.journal_20261130 USING brin (xact) WITH (autosummarize='on')
CREATE UNIQUE INDEX journal_default_pkey ON stepkeep.journal_default USING btree (run_id, seq, tenant)
CREATE INDEX journal_default_xact_idx ON stepkeep.journal_default USING brin (xact) WITH (autosummarize='on')
CREATE UNIQUE INDEX limit_holds_of_key ON stepkeep.limit_holds USING btree (tenant, name, key, seq)
CREATE UNIQUE INDEX limit_holds_pkey ON stepkeep.limit_holds USING btree (tenant, run_id, no, name)
CREATE UNIQUE INDEX limit_keys_pkey ON stepkeep.limit_keys USING btree (tenant, name, key)
CREATE INDEX limit_lines_due ON stepkeep.limit_lines USING btree (queue, due_at) WHERE (due_at IS NOT NULL)
CREATE UNIQUE INDEX limit_lines_pkey ON stepkeep.limit_lines USING btree (tenant, name, key, queue)
CREATE INDEX limit_waits_of_line ON stepkeep.limit_waits USING btree (tenant, name, key, queue, priority DESC, asked_at, run_id, no)
CREATE UNIQUE INDEX limit_waits_pkey ON stepkeep.limit_waits USING btree (tenant, run_id, no)
CREATE INDEX mailbox_forget ON stepkeep.mailbox USING btree (forget_at)
CREATE INDEX mailbox_kept ON stepkeep.mailbox USING btree (tenant, key, number, id) WHERE (payload IS NOT NULL)
CREATE UNIQUE INDEX mailbox_pkey ON stepkeep.mailbox USING btree (tenant, key, id)
CREATE INDEX memberships_name ON stepkeep.memberships USING btree (tenant, kind, name)
CREATE UNIQUE INDEX memberships_pkey ON stepkeep.memberships USING btree (tenant, id)
CREATE INDEX memberships_subject ON stepkeep.memberships USING btree (tenant, subject_kind, subject)
CREATE UNIQUE INDEX messages_pkey ON stepkeep.messages USING btree (tenant, run_id, number)
CREATE UNIQUE INDEX messages_tenant_run_id_id_key ON stepkeep.messages USING btree (tenant, run_id, id)
CREATE UNIQUE INDEX migrations_pkey ON stepkeep.migrations USING btree (version)
CREATE UNIQUE INDEX outbox_pkey ON stepkeep.outbox USING btree (tenant, run_id, seq, number)
CREATE UNIQUE INDEX payload_chunks_pkey ON stepkeep.payload_chunks USING btree (run_id, digest, no, tenant)
CREATE UNIQUE INDEX people_journal_pkey ON stepkeep.people_journal USING btree (tenant, seq)
CREATE INDEX people_journal_subject ON stepkeep.people_journal USING btree (tenant, subject, seq)
CREATE INDEX people_journal_time ON stepkeep.people_journal USING btree (tenant, at, seq)
CREATE UNIQUE INDEX policies_pkey ON stepkeep.policies USING btree (tenant, revision)
CREATE UNIQUE INDEX principals_pkey ON stepkeep.principals USING btree (tenant, name)
CREATE UNIQUE INDEX principals_tenant_folded_key ON stepkeep.principals USING btree (tenant, folded)
CREATE UNIQUE INDEX quarantine_open ON stepkeep.quarantine USING btree (tenant, run_id) WHERE (released_at IS NULL)
CREATE UNIQUE INDEX quarantine_pkey ON stepkeep.quarantine USING btree (id)
CREATE UNIQUE INDEX queues_pkey ON stepkeep.queues USING btree (id)
CREATE UNIQUE INDEX queues_tenant_spec_key ON stepkeep.queues USING btree (tenant, spec)
CREATE UNIQUE INDEX quota_runs_pkey ON stepkeep.quota_runs USING btree (tenant, scope, run_id)
CREATE UNIQUE INDEX quota_scopes_pkey ON stepkeep.quota_scopes USING btree (tenant, scope)
CREATE INDEX resource_holds_of_run ON stepkeep.resource_holds USING btree (tenant, run_id)
CREATE UNIQUE INDEX resource_holds_pkey ON stepkeep.resource_holds USING btree (tenant, resource, run_id, no)
CREATE UNIQUE INDEX resource_is_exclusive ON stepkeep.resource_holds USING btree (tenant, resource) WHERE (mode = 'exclusive'::text)
CREATE INDEX run_details_business_key ON stepkeep.run_details USING btree (tenant, business_key, run_id) WHERE (business_key IS NOT NULL)
CREATE INDEX run_details_correlation ON stepkeep.run_details USING btree (tenant, correlation_id, run_id) WHERE (correlation_id <> (run_id)::text)
CREATE UNIQUE INDEX run_details_pkey ON stepkeep.run_details USING btree (tenant, run_id)
CREATE INDEX run_details_reruns ON stepkeep.run_details USING btree (tenant, rerun_of, run_id) WHERE (rerun_of IS NOT NULL)
CREATE INDEX run_details_workflow ON stepkeep.run_details USING btree (tenant, workflow, run_id)
CREATE INDEX runs_due ON stepkeep.runs USING btree (due_at) WHERE (due_at IS NOT NULL)
CREATE INDEX runs_live ON stepkeep.runs USING btree (tenant, id) WHERE (ended_at IS NULL)
CREATE UNIQUE INDEX runs_pkey ON stepkeep.runs USING btree (tenant, id)
CREATE INDEX runs_troubled ON stepkeep.runs USING btree (tenant, id) WHERE (cause IS NOT NULL)
CREATE UNIQUE INDEX schemas_pkey ON stepkeep.schemas USING btree (tenant, ref)
CREATE UNIQUE INDEX sessions_id_key ON stepkeep.sessions USING btree (id)
CREATE INDEX sessions_key ON stepkeep.sessions USING btree (tenant, key, id) WHERE (ended_at IS NULL)
CREATE UNIQUE INDEX sessions_pkey ON stepkeep.sessions USING btree (tenant, id)
CREATE UNIQUE INDEX settings_pkey ON stepkeep.settings USING btree (tenant, kind, name, revision)
CREATE UNIQUE INDEX signed_heads_pkey ON stepkeep.signed_heads USING btree (run_id, key_id, tenant)
CREATE UNIQUE INDEX sinks_pkey ON stepkeep.sinks USING btree (tenant, name)
CREATE INDEX slots_granted ON stepkeep.slots USING btree (tenant, workflow, run_id) WHERE (granted_at IS NOT NULL)
CREATE UNIQUE INDEX slots_pkey ON stepkeep.slots USING btree (tenant, run_id)
CREATE INDEX slots_waiting ON stepkeep.slots USING btree (tenant, workflow, priority DESC, asked_at, run_id) WHERE (granted_at IS NULL)
CREATE INDEX steps_await_resources ON stepkeep.steps USING btree (queue, priority DESC, ready_at, run_id, no) WHERE ((ready_at >= '100000000000000000'::bigint) AND (ready_at < '200000000000000000'::bigint))
CREATE INDEX steps_claim ON stepkeep.steps USING btree (queue, priority DESC, ready_at, run_id, no) WHERE (ready_at < '100000000000000000'::bigint)
CREATE INDEX steps_due ON stepkeep.steps USING btree (due_at) WHERE (due_at IS NOT NULL)
CREATE INDEX steps_hold ON stepkeep.steps USING btree (tenant, run_id, no) WHERE ((state = 'awaiting_approval'::text) AND (fence > 0))
CREATE UNIQUE INDEX steps_pkey ON stepkeep.steps USING btree (run_id, no, tenant)
CREATE INDEX steps_ready ON stepkeep.steps USING btree (run_id, no) WHERE (ready_at IS NOT NULL)
CREATE UNIQUE INDEX stream_rows_pkey ON stepkeep.stream_rows USING btree (tenant, run_id, seq)
CREATE UNIQUE INDEX stream_rows_place ON stepkeep.stream_rows USING btree (tenant, run_id, no, name, fence, start)
CREATE UNIQUE INDEX tenants_pkey ON stepkeep.tenants USING btree (name)
CREATE INDEX triggers_due ON stepkeep.triggers USING btree (due_at) WHERE (due_at IS NOT NULL)
CREATE INDEX triggers_ended ON stepkeep.triggers USING btree (tenant, topic, name) WHERE ((kind = 'ended'::text) AND (removed_at IS NULL))
CREATE INDEX triggers_kind ON stepkeep.triggers USING btree (tenant, kind, name)
CREATE UNIQUE INDEX triggers_pkey ON stepkeep.triggers USING btree (tenant, name)
CREATE INDEX triggers_workflow ON stepkeep.triggers USING btree (tenant, workflow, name)
CREATE UNIQUE INDEX worker_journal_pkey ON stepkeep.worker_journal USING btree (tenant, worker_id, seq)
CREATE UNIQUE INDEX worker_reports_pkey ON stepkeep.worker_reports USING btree (tenant, worker)
CREATE INDEX workers_living ON stepkeep.workers USING btree (tenant, no) WHERE (state <> 'shutdown'::text)
CREATE UNIQUE INDEX workers_no_key ON stepkeep.workers USING btree (no)
CREATE UNIQUE INDEX workers_pkey ON stepkeep.workers USING btree (tenant, id)

-- triggers
CREATE TRIGGER adoption_keeps_its_source AFTER UPDATE ON stepkeep.adoptions FOR EACH ROW WHEN (((old.source_run <> new.source_run) OR (old.source_step <> new.source_step) OR (new.owned > old.owned))) EXECUTE FUNCTION stepkeep_refuse('an adoption keeps its source, and gives the undo away once')
CREATE TRIGGER unfinished_run_keeps_its_adoptions AFTER DELETE ON stepkeep.adoptions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the adoptions of a finished run can be deleted')
CREATE TRIGGER key_keeps_its_limits AFTER UPDATE ON stepkeep.api_keys FOR EACH ROW WHEN (((old.queues IS DISTINCT FROM new.queues) OR (old.handlers IS DISTINCT FROM new.handlers))) EXECUTE FUNCTION stepkeep_refuse('a key keeps the queues and handlers that it is limited to: make another one')
CREATE TRIGGER key_keeps_its_quotas AFTER UPDATE ON stepkeep.api_keys FOR EACH ROW WHEN (((old.max_concurrent_runs IS DISTINCT FROM new.max_concurrent_runs) OR (old.max_requests_per_min IS DISTINCT FROM new.max_requests_per_min))) EXECUTE FUNCTION stepkeep_refuse('a key keeps its quotas: rotate it, or make another one')
CREATE TRIGGER revoked_key_never_changes AFTER UPDATE ON stepkeep.api_keys FOR EACH ROW WHEN (((old.revoked_at IS NOT NULL) OR ((old.owner <> new.owner) OR (old.secret_hash <> new.secret_hash) OR (old.scopes <> new.scopes) OR (old.created_at <> new.created_at) OR (old.created_by <> new.created_by)) OR ((old.expires_at IS NOT NULL) AND ((new.expires_at IS NULL) OR (new.expires_at > old.expires_at))))) EXECUTE FUNCTION stepkeep_refuse('a key keeps its owner, secret and scopes, never gets a later end, and is revoked once')
CREATE TRIGGER attempt_never_changes AFTER UPDATE ON stepkeep.attempts FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('an attempt is written once, when it ends')
CREATE TRIGGER unfinished_run_keeps_its_attempts AFTER DELETE ON stepkeep.attempts REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the attempts of a finished run can be deleted')
CREATE TRIGGER audit_never_changes AFTER UPDATE ON stepkeep.audit FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the audit log is only ever added to')
CREATE TRIGGER checkpoint_never_changes AFTER UPDATE ON stepkeep.checkpoints FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a checkpoint never changes')
CREATE TRIGGER unfinished_run_keeps_its_checkpoints AFTER DELETE ON stepkeep.checkpoints REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the checkpoints of a finished run can be deleted')
CREATE TRIGGER unfinished_run_keeps_its_children AFTER DELETE ON stepkeep.children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the links to children of a finished run can be deleted')
CREATE TRIGGER decision_never_changes AFTER UPDATE ON stepkeep.decisions FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a decision never changes')
CREATE TRIGGER unfinished_run_keeps_its_decisions AFTER DELETE ON stepkeep.decisions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the decisions of a finished run can be deleted')
CREATE TRIGGER definition_never_changes AFTER DELETE OR UPDATE ON stepkeep.definitions FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a published definition never changes; publish a new version')
CREATE TRIGGER delegation_stays AFTER DELETE ON stepkeep.delegations FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a delegation is revoked, never deleted')
CREATE TRIGGER ended_delegation_never_changes AFTER UPDATE ON stepkeep.delegations FOR EACH ROW WHEN (((old.revoked_at IS NOT NULL) OR ((old.delegator <> new.delegator) OR (old.delegate <> new.delegate) OR (old.granted_at <> new.granted_at) OR (old.granted_by <> new.granted_by) OR (old.reason <> new.reason)) OR (old.valid_from IS DISTINCT FROM new.valid_from) OR (old.valid_to IS DISTINCT FROM new.valid_to))) EXECUTE FUNCTION stepkeep_refuse('a delegation is only ever added, and revoked once')
CREATE TRIGGER delivery_fence_only_grows AFTER UPDATE OF fence ON stepkeep.deliveries FOR EACH ROW WHEN ((new.fence < old.fence)) EXECUTE FUNCTION stepkeep_refuse('the fence of a delivery only grows')
CREATE TRIGGER delivery_is_not_taken_back AFTER UPDATE OF sent, sent_number ON stepkeep.deliveries FOR EACH ROW WHEN ((ROW(new.sent, new.sent_number) < ROW(old.sent, old.sent_number))) EXECUTE FUNCTION stepkeep_refuse('what was delivered stays delivered')
CREATE TRIGGER delivery_action_never_changes AFTER UPDATE ON stepkeep.delivery_actions FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('what people did to deliveries stays on record')
CREATE TRIGGER delivery_action_stays AFTER DELETE ON stepkeep.delivery_actions FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('what people did to deliveries stays on record')
CREATE TRIGGER fired_moment_never_changes AFTER UPDATE ON stepkeep.firings FOR EACH ROW WHEN (((old.run_id IS NOT NULL) AND (old.run_id IS DISTINCT FROM new.run_id))) EXECUTE FUNCTION stepkeep_refuse('a moment fires once: its run never changes')
CREATE TRIGGER closed_gate_never_changes AFTER UPDATE ON stepkeep.gates FOR EACH ROW WHEN (((old.closed_at IS NOT NULL) OR (old.opened_at <> new.opened_at) OR (old.shown <> new.shown) OR (old.shown_digest <> new.shown_digest) OR (new.level < old.level))) EXECUTE FUNCTION stepkeep_refuse('a gate keeps what it showed, and is closed once')
CREATE TRIGGER unfinished_run_keeps_its_gates AFTER DELETE ON stepkeep.gates REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the gates of a finished run can be deleted')
CREATE TRIGGER journal_never_changes AFTER UPDATE ON stepkeep.journal FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal is only ever added to')
CREATE TRIGGER unfinished_run_keeps_its_journal AFTER DELETE ON stepkeep.journal REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the journal of a finished run can be deleted')
CREATE TRIGGER journal_never_changes AFTER UPDATE ON stepkeep.journal_20261116 FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal is only ever added to')
CREATE TRIGGER unfinished_run_keeps_its_journal AFTER DELETE ON stepkeep.journal_20261116 REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the journal of a finished run can be deleted')
CREATE TRIGGER journal_never_changes AFTER UPDATE ON stepkeep.journal_20261123 FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal is only ever added to')
CREATE TRIGGER unfinished_run_keeps_its_journal AFTER DELETE ON stepkeep.journal_20261123 REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the journal of a finished run can be deleted')
CREATE TRIGGER journal_never_changes AFTER UPDATE ON stepkeep.journal_20261130 FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal is only ever added to')
CREATE TRIGGER unfinished_run_keeps_its_journal AFTER DELETE ON stepkeep.journal_20261130 REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the journal of a finished run can be deleted')
CREATE TRIGGER journal_never_changes AFTER UPDATE ON stepkeep.journal_default FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal is only ever added to')
CREATE TRIGGER unfinished_run_keeps_its_journal AFTER DELETE ON stepkeep.journal_default REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the journal of a finished run can be deleted')
CREATE TRIGGER delivered_message_stays_delivered AFTER UPDATE ON stepkeep.mailbox FOR EACH ROW WHEN (((old.run_id IS NOT NULL) AND (old.forget_at > new.arrived_at))) EXECUTE FUNCTION stepkeep_refuse('a delivered message never changes')
CREATE TRIGGER ended_membership_never_changes AFTER UPDATE ON stepkeep.memberships FOR EACH ROW WHEN (((old.revoked_at IS NOT NULL) OR ((old.subject <> new.subject) OR (old.subject_kind <> new.subject_kind) OR (old.kind <> new.kind) OR (old.name <> new.name) OR (old.granted_at <> new.granted_at) OR (old.granted_by <> new.granted_by)) OR (old.valid_from IS DISTINCT FROM new.valid_from) OR (old.valid_to IS DISTINCT FROM new.valid_to))) EXECUTE FUNCTION stepkeep_refuse('a membership is only ever added, and revoked once')
CREATE TRIGGER membership_stays AFTER DELETE ON stepkeep.memberships FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a membership is revoked, never deleted')
CREATE TRIGGER consumed_message_never_changes AFTER UPDATE ON stepkeep.messages FOR EACH ROW WHEN ((old.consumed_by IS NOT NULL)) EXECUTE FUNCTION stepkeep_refuse('a consumed message never changes')
CREATE TRIGGER people_journal_never_changes AFTER UPDATE ON stepkeep.people_journal FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal of people is only ever added to')
CREATE TRIGGER people_journal_stays AFTER DELETE ON stepkeep.people_journal FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal of people is never deleted')
CREATE TRIGGER policy_never_changes AFTER UPDATE ON stepkeep.policies FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a policy is only ever added: publish another revision')
CREATE TRIGGER policy_stays AFTER DELETE ON stepkeep.policies FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a policy is never deleted: verdicts on record refer to it')
CREATE TRIGGER quarantine_is_never_deleted AFTER DELETE ON stepkeep.quarantine FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the record of a quarantine is kept')
CREATE TRIGGER quarantine_only_grows AFTER UPDATE ON stepkeep.quarantine FOR EACH ROW WHEN (((old.released_at IS NOT NULL) OR (new.released_at IS NULL) OR (new.id <> old.id) OR (new.tenant <> old.tenant) OR (new.run_id <> old.run_id) OR (new.quarantined_at <> old.quarantined_at) OR (new.quarantined_by <> old.quarantined_by) OR (new.reason <> old.reason))) EXECUTE FUNCTION stepkeep_refuse('a quarantine is only ever released, once')
CREATE TRIGGER finished_run_never_changes AFTER UPDATE ON stepkeep.runs FOR EACH ROW WHEN (((old.ended_at IS NOT NULL) OR (new.seq < old.seq))) EXECUTE FUNCTION stepkeep_refuse('a finished run never changes, and the journal of a run only grows')
CREATE TRIGGER run_starts_before_it_runs AFTER UPDATE OF state ON stepkeep.runs FOR EACH ROW WHEN (((new.state <> old.state) AND ((new.seq = old.seq) OR ((old.state = 'idle'::text) AND (new.started_at IS NULL) AND (new.state <> 'cancelled'::text))))) EXECUTE FUNCTION stepkeep_refuse('a run changes its state with a journal entry, and leaves idle when it is started')
CREATE TRIGGER unfinished_run_stays AFTER DELETE ON stepkeep.runs FOR EACH ROW WHEN ((old.state <> ALL (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text, 'rolled_back'::text]))) EXECUTE FUNCTION stepkeep_refuse('only a finished run can be deleted')
CREATE TRIGGER schema_never_changes AFTER DELETE OR UPDATE ON stepkeep.schemas FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a published schema never changes; publish it under another reference')
CREATE TRIGGER ended_session_never_changes AFTER UPDATE ON stepkeep.sessions FOR EACH ROW WHEN (((old.ended_at IS NOT NULL) OR ((old.owner <> new.owner) OR (old.key <> new.key) OR (old.secret_hash <> new.secret_hash) OR (old.created_at <> new.created_at) OR (old.expires_at <> new.expires_at)))) EXECUTE FUNCTION stepkeep_refuse('a session keeps its key and its limit, and ends once')
CREATE TRIGGER setting_never_changes AFTER UPDATE ON stepkeep.settings FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a setting is only ever added: save another revision')
CREATE TRIGGER setting_stays AFTER DELETE ON stepkeep.settings FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a setting is never deleted: its revisions are the record of its changes')
CREATE TRIGGER signed_head_never_changes AFTER UPDATE ON stepkeep.signed_heads FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('a signature is only ever added')
CREATE TRIGGER slot_is_granted_once AFTER UPDATE ON stepkeep.slots FOR EACH ROW WHEN (((old.granted_at IS NOT NULL) OR (new.granted_at IS NULL))) EXECUTE FUNCTION stepkeep_refuse('a slot is granted to a run once')
CREATE TRIGGER unfinished_run_keeps_its_slot AFTER DELETE ON stepkeep.slots REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the slot of a finished run can be deleted')
CREATE TRIGGER finished_step_never_changes AFTER UPDATE ON stepkeep.steps FOR EACH ROW WHEN (((old.settled IS NOT NULL) OR (new.fence < old.fence))) EXECUTE FUNCTION stepkeep_refuse('a finished step never changes, and its fence only grows')
CREATE TRIGGER unfinished_run_keeps_its_steps AFTER DELETE ON stepkeep.steps REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION stepkeep_keep_unfinished('only the steps of a finished run can be deleted')
CREATE TRIGGER trigger_goes_on AFTER UPDATE ON stepkeep.triggers FOR EACH ROW WHEN ((new.seq <= old.seq)) EXECUTE FUNCTION stepkeep_refuse('each change of a trigger has a new sequence number')
CREATE TRIGGER living_worker_keeps_its_journal BEFORE DELETE ON stepkeep.worker_journal FOR EACH ROW EXECUTE FUNCTION stepkeep_keep_living('only the journal of a worker that was shut down can be deleted')
CREATE TRIGGER worker_journal_never_changes AFTER UPDATE ON stepkeep.worker_journal FOR EACH ROW EXECUTE FUNCTION stepkeep_refuse('the journal of a worker is only ever added to')
CREATE TRIGGER worker_keeps_its_owner AFTER UPDATE OF owner ON stepkeep.workers FOR EACH ROW WHEN ((old.owner IS DISTINCT FROM new.owner)) EXECUTE FUNCTION stepkeep_refuse('a worker keeps its owner: register another worker')

-- functions
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_attempt_is_sound(state text, category text, fence integer, number integer)
 RETURNS boolean
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
declare
    broken constant text := case
        when state not in ('succeeded', 'failed', 'timed_out', 'lost', 'cancelled', 'waited', 'released')
            then 'attempt_state'
        when category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'attempt_category'
        when fence <= 0 or number < 0 then 'attempt_counters'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception using errcode = 'check_violation', table = 'attempts', constraint = broken,
        message = format('a row of attempts breaks the rule "%s"', broken);
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_confine(home regnamespace, who regrole)
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET lock_timeout TO '5s'
AS $function$
declare
    confined record;
    changed integer := 0;
begin
    if (select rolsuper or rolbypassrls from pg_roles where oid = who) then
        raise exception 'the role % bypasses row-level security: it is a superuser or has BYPASSRLS', who;
    end if;
    for confined in
        select format('%s.%I', home, relname) as name, relname, relowner, attname, polroles,
            relrowsecurity and relforcerowsecurity as has_security
        from pg_class
        join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
            and attname = case when relname = 'tenants' then 'name' else 'tenant' end
        left join pg_policy on polrelid = pg_class.oid and polname = 'stepkeep_own_tenant'
        where relnamespace = home and relkind in ('r', 'p') and not relispartition
        order by relname
    loop
        if pg_has_role(who, confined.relowner, 'member') then
            raise exception 'the role % has the rights of %, which owns the tables', who, confined.relowner::regrole;
        end if;
        continue when confined.has_security and who::oid = any (confined.polroles);
        changed := changed + 1;
        if not confined.has_security then
            execute format('alter table %s enable row level security, force row level security', confined.name);
        end if;
        if confined.polroles is null then
            execute format('drop policy if exists stepkeep_all_tenants on %s', confined.name);
            execute format('create policy stepkeep_all_tenants on %s using (true)', confined.name);
            execute format(
                'create policy stepkeep_own_tenant on %s as restrictive to %s using (%I = (select %s.stepkeep_tenant()))',
                confined.name, who, confined.attname, home);
        elsif who::oid <> all (confined.polroles) then
            execute format(
                'alter policy stepkeep_own_tenant on %s to %s', confined.name,
                (select string_agg(role::regrole::text, ', ') from unnest(confined.polroles || who::oid) as role));
        end if;
    end loop;
    return changed;
end;
$function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_drop_empty_weeks()
 RETURNS integer
 LANGUAGE plpgsql
 SET lock_timeout TO '200ms'
AS $function$
declare
    part text;
    is_empty boolean;
    dropped integer := 0;
begin
    for part in
        select child.relname
        from pg_inherits
        join pg_class as child on child.oid = pg_inherits.inhrelid
        where pg_inherits.inhparent = to_regclass('journal')
            and child.relname ~ '^journal_\d{8}$'
            and pg_relation_size(child.oid) = 0
            and child.relname <= 'journal_' || to_char(
                to_timestamp(stepkeep_now() / 1000000) at time zone 'UTC' - interval '8 days', 'YYYYMMDD')
    loop
        lock table journal in access exclusive mode;
        execute format('select not exists (select from %I)', part) into is_empty;
        if is_empty then
            execute format('drop table %I', part);
            dropped := dropped + 1;
        end if;
    end loop;
    return dropped;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_extend_journal(weeks integer)
 RETURNS integer
 LANGUAGE plpgsql
 SET lock_timeout TO '200ms'
AS $function$
declare
    week constant bigint := 604800000000;
    monday constant bigint := 345600000000;
    first_week constant bigint := monday + (stepkeep_now() - monday) / week * week;
    begins bigint;
    part text;
    made integer := 0;
    bounds text;
begin
    for ahead in 0 .. weeks loop
        begins := first_week + ahead * week;
        part := 'journal_' || to_char(to_timestamp(begins / 1000000) at time zone 'UTC', 'YYYYMMDD');
        if to_regclass(part) is not null then
            continue;
        end if;
        if exists (
            select from journal_default
            where run_id >= stepkeep_run_ids_from(begins) and run_id < stepkeep_run_ids_from(begins + week)
        ) then
            continue;
        end if;
        bounds := format(
            'from (%L) to (%L)', stepkeep_run_ids_from(begins), stepkeep_run_ids_from(begins + week));
        execute format(
            'create table %I (like journal including all) with (autovacuum_vacuum_insert_scale_factor = 0.1)', part);
        -- Whoever deletes from a week by its own name meets no trigger of the journal's statements.
        execute format(
            'create trigger unfinished_run_keeps_its_journal after delete on %I referencing old table as gone'
            ' for each statement execute function stepkeep_keep_unfinished(%L)',
            part, 'only the journal of a finished run can be deleted');
        execute format('alter table journal attach partition %I for values %s', part, bounds);
        made := made + 1;
    end loop;
    return made;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_json(document bytea)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE STRICT
AS $function$
begin
    return convert_from(document, 'UTF8')::jsonb;
exception when data_exception or program_limit_exceeded then
    return to_jsonb(encode(document, 'escape'));
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_keep_living()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
    living boolean;
begin
    execute format(
        'select exists (select from %I.workers where tenant = $1 and id = $2 and state <> ''shutdown'')',
        tg_table_schema) into living using old.tenant, old.worker_id;
    if living then
        raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
    end if;
    return old;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_keep_unfinished()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
    unfinished boolean;
begin
    execute format(
        'select exists (select from gone cross join lateral (select from %I.runs'
        ' where runs.tenant = gone.tenant and runs.id = gone.run_id and runs.ended_at is null offset 0) as run)',
        tg_table_schema) into unfinished;
    if unfinished then
        raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
    end if;
    return null;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_met(it_did boolean)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    if it_did then
        raise exception using errcode = 'serialization_failure', message = 'a run has moved on, or a lease has run out';
    end if;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_now()
 RETURNS bigint
 LANGUAGE sql
 PARALLEL SAFE
RETURN ((EXTRACT(epoch FROM clock_timestamp()) * (1000000)::numeric))::bigint
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_part(whole bytea, place bigint)
 RETURNS bytea
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN SUBSTRING(whole FROM (NULLIF((place >> 31), '-1'::integer))::integer FOR ((place & (2147483647)::bigint))::integer)
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_refuse()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
    raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_run_ids_from(at bigint)
 RETURNS uuid
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
RETURN ((lpad(to_hex((at / 1000)), 12, '0'::text) || '00000000000000000000'::text))::uuid
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_run_is_sound(run runs)
 RETURNS boolean
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
declare
    broken constant text := case
        when run.state not in (
            'idle', 'queued', 'running', 'blocked', 'paused', 'validating', 'stopping', 'compensating',
            'succeeded', 'failed', 'cancelled', 'rolled_back') then 'run_state'
        when run.cause not in ('failure', 'timeout', 'cancel') then 'run_cause'
        when run.policy not in ('abort', 'skip', 'continue', 'compensate') then 'run_policy'
        when run.category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'run_category'
        when run.rollback not in ('none', 'complete', 'partial') then 'run_rollback'
        when least(run.seq, run.open, run.moving, run.leased, run.failed, run.undoing, run.inbox) < 0
            then 'run_counters'
        when (run.ended_at is not null) <> (run.state in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
            then 'finished_run_has_an_end'
        when run.ended_at is not null
            and (run.due_at is not null or run.open <> 0 or run.moving <> 0 or run.leased <> 0 or run.undoing <> 0)
            then 'finished_run_is_at_rest'
        when run.cause is null and run.state in ('stopping', 'compensating', 'failed', 'cancelled', 'rolled_back')
            then 'troubled_run_has_a_cause'
        when run.leased > run.moving then 'leased_steps_are_moving'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception using errcode = 'check_violation', table = 'runs', constraint = broken,
        message = format('a row of runs breaks the rule "%s"', broken);
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_step_is_sound(step steps)
 RETURNS boolean
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
declare
    broken text := case
        when step.state not in (
            'pending', 'ready', 'running', 'validating', 'retrying', 'awaiting_approval', 'awaiting_event',
            'awaiting_completion', 'awaiting_children', 'succeeded', 'failed', 'skipped', 'cancelled') then 'step_state'
        when step.category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'step_category'
        when least(step.no, step.fence, step.attempts, step.losses, step.unmet) < 0 then 'step_counters'
        when step.state = 'ready' and step.ready_at is null then 'ready_step_is_claimable'
        when step.ready_at is not null
            and (step.state not in ('ready', 'validating') or step.worker is not null or step.queue <= 0)
            then 'claimable_step_may_be_claimed'
        when step.state = 'running' and step.worker is null then 'running_step_is_leased'
        when step.state = 'validating' and (step.worker is null) <> (step.ready_at is not null)
            then 'validating_step_is_leased_or_claimable'
        when (step.worker is not null or step.claimed_at is not null)
            and (step.state not in ('running', 'validating') or step.fence <= 0 or step.worker is null
                or step.claimed_at is null or step.due_at is null) then 'lease_is_whole'
        when step.due_at is not null and step.worker is null
            and step.state not in (
                'retrying', 'awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')
            then 'timer_has_a_meaning'
        when step.state = 'retrying' and step.due_at is null then 'retrying_step_has_a_timer'
        when (step.settled is not null) <> (step.state in ('succeeded', 'failed', 'skipped', 'cancelled'))
            then 'settled_step_has_its_place'
        when step.note is null and step.state = 'awaiting_event' then 'waiting_step_names_its_event'
        when step.note is null and step.state = 'awaiting_completion' then 'waiting_step_has_a_token'
    end;
begin
    if broken is null then
        if step.note is null then
            return true;
        end if;
        begin
            broken := case
                when step.note::json is null then 'note_is_json'
                when step.state = 'awaiting_event' and coalesce(step.note::json ->> 'event', '') = ''
                    then 'waiting_step_names_its_event'
                when step.state = 'awaiting_completion' and coalesce(step.note::json ->> 'token', '') = ''
                    then 'waiting_step_has_a_token'
            end;
        exception when invalid_text_representation then
            broken := 'note_is_json';
        end;
        if broken is null then
            return true;
        end if;
    end if;
    raise exception using errcode = 'check_violation', table = 'steps', constraint = broken,
        message = format('a row of steps breaks the rule "%s"', broken);
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_step_names(document bytea)
 RETURNS text[]
 LANGUAGE plpgsql
 IMMUTABLE STRICT COST 100000
AS $function$
declare
    main text[];
begin
    select array_agg(step ->> 'name' order by (step ->> 'order')::numeric, step ->> 'name' collate "C") into main
    from jsonb_array_elements(stepkeep_json(document) -> 'steps') as step;
    return main || array(select 'undo:' || name from unnest(main) with ordinality as main(name, place) order by place)
        || array['check:run'];
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_tell(what text)
 RETURNS text
 LANGUAGE plpgsql
 STRICT
AS $function$
begin
    perform pg_notify('stepkeep', what);
    return what;
end $function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_tenant()
 RETURNS text
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
    name constant text := current_setting('stepkeep.tenant', true);
begin
    if name is null or name = '' then
        raise exception 'the setting stepkeep.tenant is not set in this transaction' using errcode = 'insufficient_privilege';
    end if;
    return name;
end;
$function$
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_tenant_names(integer)
 RETURNS SETOF text
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
BEGIN ATOMIC
 SELECT tenants.name
    FROM tenants
   ORDER BY tenants.name
  LIMIT $1;
END
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_tenant_of_key(text)
 RETURNS text
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
RETURN (SELECT api_keys.tenant FROM api_keys WHERE (api_keys.id = $1))
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_tenant_of_session(text)
 RETURNS text
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
RETURN (SELECT sessions.tenant FROM sessions WHERE (sessions.id = $1))
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_text(whole bytea, place bigint)
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN convert_from(SUBSTRING(whole FROM (NULLIF((place >> 31), '-1'::integer))::integer FOR ((place & (2147483647)::bigint))::integer), 'UTF8'::name)
CREATE OR REPLACE FUNCTION stepkeep.stepkeep_time(micros bigint)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE PARALLEL SAFE STRICT
RETURN ('1970-01-01 00:00:00+00'::timestamp with time zone + ((micros)::double precision * '00:00:00.000001'::interval))

-- policies


-- storage
attempts {autovacuum_vacuum_insert_scale_factor=0.1}
deliveries {fillfactor=70}
journal_20261116 {autovacuum_vacuum_insert_scale_factor=0.1}
journal_20261116_xact_idx {autosummarize=on}
journal_20261123 {autovacuum_vacuum_insert_scale_factor=0.1}
journal_20261123_xact_idx {autosummarize=on}
journal_20261130 {autovacuum_vacuum_insert_scale_factor=0.1}
journal_20261130_xact_idx {autosummarize=on}
journal_default {autovacuum_vacuum_insert_scale_factor=0.1}
journal_default_xact_idx {autosummarize=on}
journal_xact {autosummarize=on}
limit_keys {fillfactor=70}
runs {fillfactor=70,autovacuum_vacuum_scale_factor=0.02,autovacuum_analyze_scale_factor=0.05}
steps {fillfactor=70,autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=1,autovacuum_analyze_scale_factor=0.05}
worker_reports {fillfactor=50}
workers {fillfactor=70}

