-- Has a claim's lease last from now on, and never shortens it.
-- KEYS[1]  the record
-- ARGV[1]  the claim's fence           ARGV[2]  hash of its attempt
-- ARGV[3]  lease, ms
-- returns  held record
--          completed | released | superseded | ended
--          unknown            a fault

if is ~= 'held' then
  return is .. ' ' .. stamp
end
local over = math.max(u48(rec, 23), now + tonumber(ARGV[3]))
return 'held ' .. stamp .. rewrite(rec, byte(rec, 2), math.max(ends, over), over, fence(rec), sub(rec, 33))
