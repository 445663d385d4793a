-- Ends a claim of which nothing was done.
-- KEYS[1]  the record
-- ARGV[1]  the claim's fence           ARGV[2]  hash of its attempt
-- returns  released           now or before
--          committed          it is past its point of no return
--          completed | superseded | ended
--          unknown            a fault

if is == 'released' then
  -- Written again, changing nothing, so that WAIT has something to wait for.
  write(KEYS[1], rec, ends)
end
if is ~= 'held' then
  return is .. ' ' .. stamp
end
local how = committed(rec)
if how ~= 0 and how ~= RESOLVED then
  return 'committed ' .. stamp
end
-- The fence stays, so that the next claim's is larger; the digest does not.
rewrite(rec, ISSUED, ends, now, fence(rec), ARGV[2])
tell(KEYS[1])
return 'released ' .. stamp
