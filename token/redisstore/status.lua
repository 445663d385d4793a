-- Reads a token's record and changes nothing.
-- KEYS[1]  the token's record
-- returns  found record | absent

if rec then
  return 'found ' .. stamp .. rec
end
return 'absent ' .. stamp
