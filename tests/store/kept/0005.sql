BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
CREATE TABLE artifact (
	digest VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	files TEXT NOT NULL, 
	present INTEGER NOT NULL, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_artifact PRIMARY KEY (digest)
);
INSERT INTO "artifact" VALUES('41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d',6,'{"model.onnx":6}',1,1.79523054601598834991e+09);
INSERT INTO "artifact" VALUES('d1625cb8abd5fcc52a962a6674669da11dd44b88a3d9ee1ec7737a4be74b0437',13,'{"model.onnx":13}',1,1795230546.05598);
INSERT INTO "artifact" VALUES('c08bbe147c1824f3ccd5ca848ffc156aa6bbb5426af3bb59eaef7342ea3f8fd1',11,'{"model.onnx":11}',1,1.7952305460799992085e+09);
CREATE TABLE chain (
	"plan" VARCHAR(64) NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	nodes TEXT NOT NULL, 
	points TEXT NOT NULL, 
	CONSTRAINT pk_chain PRIMARY KEY ("plan", id), 
	CONSTRAINT fk_chain_plan FOREIGN KEY("plan") REFERENCES "plan" (digest)
);
CREATE TABLE environment (
	digest VARCHAR(64) NOT NULL, 
	content TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_environment PRIMARY KEY (digest)
);
INSERT INTO "environment" VALUES('f8773e4a7285c857567c91b7b55b8adf7d3deb6c4586b6f199bee4ec015d7ca1','{"libraries":{"onnx":"1.2.3"},"python":"3.11"}',1.7952305460799992085e+09);
CREATE TABLE evaluation (
	"key" VARCHAR(64) NOT NULL, 
	outcome VARCHAR(16), 
	artifact VARCHAR(64), 
	session_options TEXT, 
	candidate VARCHAR(64), 
	meter TEXT NOT NULL, 
	details TEXT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	message TEXT NOT NULL, 
	environment VARCHAR(64), 
	run VARCHAR(64), 
	owner TEXT, 
	lease DOUBLE, 
	finished DOUBLE, 
	CONSTRAINT pk_evaluation PRIMARY KEY ("key"), 
	CONSTRAINT fk_evaluation_artifact FOREIGN KEY(artifact) REFERENCES artifact (digest), 
	CONSTRAINT fk_evaluation_environment FOREIGN KEY(environment) REFERENCES environment (digest), 
	CONSTRAINT fk_evaluation_run FOREIGN KEY(run) REFERENCES run (id) ON DELETE SET NULL
);
INSERT INTO "evaluation" VALUES('8da6ce4337ba579cdf4157e4d9d814443f29446ecb31d7254a9c83b4f05ea9d9','ok','c08bbe147c1824f3ccd5ca848ffc156aa6bbb5426af3bb59eaef7342ea3f8fd1','{}','056ba71e4fb57912473b37619cf036de5138b7bb4cae21483dba7f293c32ef25','size','{}',0.0,'','f8773e4a7285c857567c91b7b55b8adf7d3deb6c4586b6f199bee4ec015d7ca1','89560bb8f5a4','host.00000000/boot/1/1/1',NULL,1.79523054609098291394e+09);
CREATE TABLE event (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	time DOUBLE NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	run VARCHAR(64), 
	subject TEXT NOT NULL, 
	content TEXT NOT NULL, 
	CONSTRAINT pk_event PRIMARY KEY (number), 
	CONSTRAINT uq_event_id UNIQUE (id), 
	CONSTRAINT fk_event_run FOREIGN KEY(run) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "event" VALUES(1,'136ad03eac96452e92fc36ecee8bdc4f',1.79523054609400033948e+09,'note','89560bb8f5a4','x','{}');
CREATE TABLE metric_value (
	evaluation VARCHAR(64) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	metric VARCHAR(128) NOT NULL, 
	value DOUBLE, 
	low DOUBLE, 
	high DOUBLE, 
	CONSTRAINT pk_metric_value PRIMARY KEY (evaluation, role, metric), 
	CONSTRAINT fk_metric_value_evaluation FOREIGN KEY(evaluation) REFERENCES evaluation ("key") ON DELETE CASCADE
);
INSERT INTO "metric_value" VALUES('8da6ce4337ba579cdf4157e4d9d814443f29446ecb31d7254a9c83b4f05ea9d9','candidate','size',3.0,3.0,3.0);
INSERT INTO "metric_value" VALUES('8da6ce4337ba579cdf4157e4d9d814443f29446ecb31d7254a9c83b4f05ea9d9','source','size',6.0,6.0,6.0);
INSERT INTO "metric_value" VALUES('8da6ce4337ba579cdf4157e4d9d814443f29446ecb31d7254a9c83b4f05ea9d9','ratio','size',0.5,0.4,0.6);
CREATE TABLE model (
	artifact VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	inspection TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_model PRIMARY KEY (artifact), 
	CONSTRAINT fk_model_artifact FOREIGN KEY(artifact) REFERENCES artifact (digest)
);
INSERT INTO "model" VALUES('41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d','net','{}',1.79523054601699399946e+09);
CREATE TABLE pass_run (
	"key" VARCHAR(64) NOT NULL, 
	outcome VARCHAR(16), 
	pass_name TEXT NOT NULL, 
	node TEXT, 
	params TEXT NOT NULL, 
	input_artifact VARCHAR(64), 
	input_options TEXT, 
	input_key VARCHAR(64), 
	output_artifact VARCHAR(64), 
	output_options TEXT, 
	output_key VARCHAR(64), 
	seconds DOUBLE NOT NULL, 
	message TEXT NOT NULL, 
	environment VARCHAR(64), 
	attempts TEXT NOT NULL, 
	reports TEXT NOT NULL, 
	run VARCHAR(64), 
	owner TEXT, 
	lease DOUBLE, 
	finished DOUBLE, 
	CONSTRAINT pk_pass_run PRIMARY KEY ("key"), 
	CONSTRAINT fk_pass_run_input_artifact FOREIGN KEY(input_artifact) REFERENCES artifact (digest), 
	CONSTRAINT fk_pass_run_output_artifact FOREIGN KEY(output_artifact) REFERENCES artifact (digest), 
	CONSTRAINT fk_pass_run_environment FOREIGN KEY(environment) REFERENCES environment (digest), 
	CONSTRAINT fk_pass_run_run FOREIGN KEY(run) REFERENCES run (id) ON DELETE SET NULL
);
INSERT INTO "pass_run" VALUES('f5b8364f62985fb30ce349ee826fc9e1af013dbcd7414f0c46b85eaad321365e','ok','simplify',NULL,'{"level":2}','41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d','{}','60e30fd6858265ee71bcc650b7eb1f2d18eca093d5ef72c8bd15998e9e053509','d1625cb8abd5fcc52a962a6674669da11dd44b88a3d9ee1ec7737a4be74b0437','{}','8d7160b7c757fb0bdcd2ccad6975db1e529db5e82e41aa1cd17d41f3f18ef231',0.5,'','f8773e4a7285c857567c91b7b55b8adf7d3deb6c4586b6f199bee4ec015d7ca1','[]','{}','89560bb8f5a4','host.00000000/boot/1/1/1',NULL,1.79523054608100509645e+09);
INSERT INTO "pass_run" VALUES('9949445662f2584c8f599ef9d696cbef9b887be0123469a9b0b59da8df565827','ok','float16',NULL,'{"level":2}','d1625cb8abd5fcc52a962a6674669da11dd44b88a3d9ee1ec7737a4be74b0437','{}','8d7160b7c757fb0bdcd2ccad6975db1e529db5e82e41aa1cd17d41f3f18ef231','c08bbe147c1824f3ccd5ca848ffc156aa6bbb5426af3bb59eaef7342ea3f8fd1','{}','056ba71e4fb57912473b37619cf036de5138b7bb4cae21483dba7f293c32ef25',0.5,'','f8773e4a7285c857567c91b7b55b8adf7d3deb6c4586b6f199bee4ec015d7ca1','[]','{}','89560bb8f5a4','host.00000000/boot/1/1/1',NULL,1.79523054608201074601e+09);
CREATE TABLE "plan" (
	digest VARCHAR(64) NOT NULL, 
	content TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_plan PRIMARY KEY (digest)
);
INSERT INTO "plan" VALUES('177602d4c612ab9aec0e6935dec68692e9db38b82802b4b85ab7674172bf50e2','{}',1.79523054601699399946e+09);
CREATE TABLE run (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	identity VARCHAR(64) NOT NULL, 
	model VARCHAR(64) NOT NULL, 
	"plan" VARCHAR(64) NOT NULL, 
	settings TEXT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	result TEXT, 
	sweep VARCHAR(64), 
	owner TEXT, 
	lease DOUBLE, 
	created DOUBLE NOT NULL, 
	finished DOUBLE, parent VARCHAR(64), 
	CONSTRAINT pk_run PRIMARY KEY (number), 
	CONSTRAINT uq_run_id UNIQUE (id), 
	CONSTRAINT fk_run_model FOREIGN KEY(model) REFERENCES artifact (digest), 
	CONSTRAINT fk_run_plan FOREIGN KEY("plan") REFERENCES "plan" (digest), 
	CONSTRAINT fk_run_sweep FOREIGN KEY(sweep) REFERENCES sweep (id)
);
INSERT INTO "run" VALUES(1,'89560bb8f5a4','net cpu','8715bcfdced62d77ba90039fc9c2e118d1f066cda4af05b2c0c0f02cbf64e81d','41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d','177602d4c612ab9aec0e6935dec68692e9db38b82802b4b85ab7674172bf50e2','{}','finished','{"best":{"artifact":"c08bbe147c1824f3ccd5ca848ffc156aa6bbb5426af3bb59eaef7342ea3f8fd1"}}',NULL,'host.00000000/boot/1/1/1',NULL,1795230546.018,1.79523054610301256175e+09,NULL);
INSERT INTO "run" VALUES(2,'part','of one target','pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp','41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d','177602d4c612ab9aec0e6935dec68692e9db38b82802b4b85ab7674172bf50e2','{}','finished','{"best":null}',NULL,'vm.0035969e/69dcc64556914cd0934370bc1ebab9c7/4026531836/16776/139187',NULL,1.79526136546801328656e+09,1.79526136546998476986e+09,'89560bb8f5a4');
CREATE TABLE sweep (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	result TEXT, 
	created DOUBLE NOT NULL, 
	finished DOUBLE, owner TEXT, lease DOUBLE, 
	CONSTRAINT pk_sweep PRIMARY KEY (number), 
	CONSTRAINT uq_sweep_id UNIQUE (id)
);
CREATE TABLE trial (
	run VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	chain VARCHAR(64) NOT NULL, 
	point TEXT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	outcome VARCHAR(16), 
	artifact VARCHAR(64), 
	session_options TEXT, 
	metrics TEXT NOT NULL, 
	ratios TEXT NOT NULL, 
	details TEXT NOT NULL, 
	violation DOUBLE, 
	message TEXT NOT NULL, 
	owner TEXT, 
	lease DOUBLE, 
	pass_runs TEXT NOT NULL, 
	evaluations TEXT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	finished DOUBLE, 
	CONSTRAINT pk_trial PRIMARY KEY (run, number), 
	CONSTRAINT fk_trial_run FOREIGN KEY(run) REFERENCES run (id) ON DELETE CASCADE, 
	CONSTRAINT fk_trial_artifact FOREIGN KEY(artifact) REFERENCES artifact (digest)
);
INSERT INTO "trial" VALUES('89560bb8f5a4',0,'6123e71c6ca1ad8ac997ecfc3b87e39e709ab8e0dfb508895c135b00c2f33c1e','{"a":{"x":1}}','done','ok','c08bbe147c1824f3ccd5ca848ffc156aa6bbb5426af3bb59eaef7342ea3f8fd1','{}','{"size":{"high":3.0,"low":3.0,"value":3.0}}','{}','{}',0.0,'','host.00000000/boot/1/1/1',NULL,'["f5b8364f62985fb30ce349ee826fc9e1af013dbcd7414f0c46b85eaad321365e","9949445662f2584c8f599ef9d696cbef9b887be0123469a9b0b59da8df565827"]','["8da6ce4337ba579cdf4157e4d9d814443f29446ecb31d7254a9c83b4f05ea9d9"]',0.0,1.79523054609299445149e+09);
CREATE INDEX ix_run_identity ON run (identity);
CREATE INDEX ix_run_model ON run (model);
CREATE INDEX ix_run_sweep ON run (sweep);
CREATE INDEX ix_trial_run_chain_status ON trial (run, chain, status);
CREATE INDEX ix_trial_artifact ON trial (artifact);
CREATE INDEX ix_pass_run_run ON pass_run (run);
CREATE INDEX ix_pass_run_output_key ON pass_run (output_key);
CREATE INDEX ix_pass_run_input_artifact ON pass_run (input_artifact);
CREATE INDEX ix_pass_run_output_artifact ON pass_run (output_artifact);
CREATE INDEX ix_evaluation_candidate ON evaluation (candidate);
CREATE INDEX ix_evaluation_run ON evaluation (run);
CREATE INDEX ix_evaluation_artifact ON evaluation (artifact);
CREATE INDEX ix_event_run ON event (run);
CREATE INDEX ix_event_kind_subject ON event (kind, subject);
CREATE INDEX ix_run_parent ON run (parent);
CREATE INDEX ix_pass_run_unchanged ON pass_run (input_key) WHERE outcome = 'unchanged';
COMMIT;
