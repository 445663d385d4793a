-- What the record at KEYS[1] is to the claim of the fence ARGV[1] and the attempt ARGV[2]
-- (is), for the scripts of a claim's later steps:
--   held        it is claimed by it
--   completed   it was completed by it
--   released    the claim was released, and none has been granted since
--   superseded  a later claim is known
--   ended       the claim ended otherwise, or the record is gone
--   unknown     a state of a later release, or delete mode's: a fault

local is = 'ended'
if rec then
  local ahead = fence(rec) - tonumber(ARGV[1])
  local attempt = sub(rec, 33, 44)
  if state < ISSUED or state > COMPLETED or byte(rec, 2) >= DELETE then
    is = 'unknown'
  elseif ahead > 0 then
    is = 'superseded'
  elseif ahead < 0 then
    is = 'ended'
  elseif state == USED or state == REVOKED and attempt == NONE then
    is = 'released' -- before that: a consume that takes over has a fence of its own
  elseif state ~= REVOKED and attempt == ARGV[2] then
    is = state == CLAIMED and 'held' or state == COMPLETED and 'completed' or 'released'
  end
end
