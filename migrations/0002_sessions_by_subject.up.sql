-- A caller with scope "own" lists few sessions of a tenant that may have very many.
CREATE INDEX sessions_by_owner ON sessions (tenant, owner_subject, create_position);

CREATE INDEX sessions_by_creator ON sessions (tenant, created_by_subject, create_position);
