-- Ends a claim and keeps its result.
-- KEYS[1]  the record
-- ARGV[1]  the claim's fence           ARGV[2]  hash of its attempt
-- ARGV[3]  the result, or ''
-- returns  completed record   completed now; the record without its result
--          replayed record    completed before by the same claim
--          released | superseded | ended
--          unknown            a fault
-- The result adds memory, and is kept even while Redis is full: the work is done, and
-- would be run again if the claim could not be completed.

if is == 'completed' then
  -- Written again, changing nothing, so that WAIT has something to wait for.
  write(KEYS[1], rec, ends)
  return 'replayed ' .. stamp .. sub(rec, 1, 56)
end
if is ~= 'held' then
  return is .. ' ' .. stamp
end
local hash = digest(rec)
local rest = ARGV[2] .. (hash ~= '' and hash or NONE) .. ARGV[3]
rec = rewrite(rec, COMPLETED, math.max(ends, remembered(rec)), now, fence(rec), rest)
tell(KEYS[1])
return 'completed ' .. stamp .. sub(rec, 1, 56)
