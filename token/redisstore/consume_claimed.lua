-- What is left of consume.lua, behind functions.lua: a token that was claimed and released,
-- or whose claim may be taken over.

local number, used = fence(rec), USED
ends = math.max(ends, last)
if state == CLAIMED then
  if now < u48(rec, 23) then
    return 'progress ' .. stamp .. rec
  end
  if byte(rec, 2) >= COMMITTED then
    return 'unfinished ' .. stamp .. rec
  end
  number, used = number + 1, USED + TAKEOVER
  digest = digest ~= '' and digest or sub(rec, 45, 56)
  ends = math.max(ends, now + u32(rec, 13) * 1000)
end
rec = '\1' .. char(used) .. sub(rec, 3, 16) .. bytes48(ends) .. stamp .. bytes32(number) .. attempt .. digest
put(key, rec, int(ends + 60000))
if state == CLAIMED then
  tell(key)
end
return 'consumed ' .. stamp .. rec
