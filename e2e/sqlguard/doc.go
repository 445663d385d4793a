// Package sqlguard holds client/sqlguard to what it promises on real databases: PostgreSQL and
// MariaDB servers that the tests start, and SQLite, each at its default isolation, at
// SERIALIZABLE, and as some drivers' parameters have it. It has tests only.
package sqlguard
