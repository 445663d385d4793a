-- Commits a claim: no takeover from here on.
-- KEYS[1]  the record
-- ARGV[1]  the claim's fence           ARGV[2]  hash of its attempt
-- returns  held record        committed, now or before
--          completed | released | superseded | ended
--          unknown            a fault

if is ~= 'held' then
  return is .. ' ' .. stamp
end
local bits = byte(rec, 2)
if committed(rec) == 0 then
  bits = bits + LATER
  if u32(rec, 9) == 0 then -- a key is remembered from its commit on
    ends = math.max(ends, remembered(rec))
  end
end
-- Written again even where it changes nothing, so that WAIT has something to wait for.
return 'held ' .. stamp .. rewrite(rec, bits, ends, u48(rec, 23), fence(rec), sub(rec, 33))
