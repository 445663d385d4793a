-- For scripts that answer several calls at once, a record each: the records at KEYS. `answer`,
-- which is left open here and ends in several_end.lua, answers one of them.
--
-- One GETEX does for all: it is a write, so a demoted or cut-off master answers READONLY or
-- NOREPLICAS, and never a stale refusal. What a call writes, `put` keeps here too: the next
-- may be for the same record.

local recs = {}
if #KEYS == 1 then
  recs[KEYS[1]] = call('GETEX', KEYS[1])
else
  call('GETEX', KEYS[1])
  for i, rec in ipairs(call('MGET', unpack(KEYS))) do
    recs[KEYS[i]] = rec
  end
end

local function put(key, rec, drop)
  call('SET', key, rec, 'PXAT', drop)
  recs[key] = rec
end

-- Answers the call for the record at key, the arguments of which stand behind ARGV[at].
local function answer(key, at)
  local rec = recs[key]
