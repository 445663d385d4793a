-- The record at KEYS[1]. GETEX is a write, so a demoted or cut-off master answers READONLY or
-- NOREPLICAS, and never a stale refusal.

local rec = call('GETEX', KEYS[1])
