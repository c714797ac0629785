# How the tests run: what keeps two cores busy when script/test runs several side by side, and what
# its tiers leave out.
#
# label quick   script/test --quick: what finds the most faults in a minute
# label turn_N  script/test runs those of one N in six, another N for each sample
# label long    script/test leaves it to --full
#
# Each test also has its folder as a label, so that CTest's summary says where time goes.
#
# A test that declares nothing takes one place of those that CTest fills (-j), also if its ranks
# are several, since most wait most of the time. PROCESSORS is for tests that keep two cores busy.
# Tests whose processes, sockets or shared memory are counted run under alone.sh.
get_property(tests DIRECTORY PROPERTY TESTS)

# choir_choose(VARIABLE REGEX...): the tests whose whole name one of these matches.
function(choir_choose variable)
  set(chosen ${tests})
  list(JOIN ARGN "|" any)
  list(FILTER chosen INCLUDE REGEX "^(${any})$")
  set(${variable} ${chosen} PARENT_SCOPE)
endfunction()

foreach(test IN LISTS tests)
  string(REGEX MATCH "^[^.]+" folder ${test})
  set_property(TEST ${test} APPEND PROPERTY LABELS ${folder})
endforeach()

# --- who runs beside whom -------------------------------------------------------------------------
choir_choose(busy "multi[.](same_bits|shm_places.*|group.*|pipeline.*)" "mpi[.](collectives|suite)"
  "interop[.]ddp" "cli[.](amp|mesh|same_bits|chaos|diloco|hogwild|threads)" "cuda[.]shm_.*"
  "conformance[.]collectives")
set_tests_properties(${busy} PROPERTIES PROCESSORS 2)

# Without namespaces what is counted is the machine's.
execute_process(COMMAND unshare --mount --ipc mount -t tmpfs tmpfs /dev/shm
  RESULT_VARIABLE cannot_be_alone OUTPUT_QUIET ERROR_QUIET)
if(NOT cannot_be_alone EQUAL 0)
  set_tests_properties(${counting} PROPERTIES RUN_SERIAL TRUE)
endif()

# --- the longest first, in seconds ----------------------------------------------------------------
set(seconds cli.chaos_elastic 90
  cli.faults 60 cli.same_bits 60 cli.bench 55 cli.elastic 50 cli.run_machines 25
  cli.run_nodes 45 cli.run_etcd 50 cli.run_elastic 50 fault.disagree 50 cuda.saved 45 cli.records 45
  multi.same_bits 50 mpi.failures 40 fault.chaos 25 cuda.same_bits 40 multi.meet 40
  interop.tokenizers 35 interop.ddp 35 interop.torchrun 35 softgpu.race_kernels_attention 30
  cli.watch 20 cli.comforts 30 cli.run_copies 30 multi.meet_file 30 cli.weights 30 cli.recipes 30
  cli.pipeline_ranks 30 cli.resume 30 cli.amp 30 mpi.collectives 30 multi.ucx 30 mpi.slurm 30
  cuda.half 25 cuda.unit_recompute 25 cuda.nccl 25 softgpu.cli_output 25 install.languages 25
  multi.pipeline 25 mpi.machines 25 fault.checkpoint_damage 22 fault.checkpoint_kill 20
  multi.shm_places 20 multi.shm_places_numa 20 cli.mesh 20 fault.ledger 20 unit.schedule 15
  cli.watch_strange 30 cli.watch_browser 30
  install.readme 60 install.packages 60 unit.message 15 cli.chaos 15 cli.numbers 12 cli.signals 20
  cli.bad_saves 20 conformance.collectives 12)
while(seconds)
  list(POP_FRONT seconds name cost)
  if(name IN_LIST tests)
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
endwhile()

# --- the minute after each change -----------------------------------------------------------------
choir_choose(quick "unit[.].*" "fuzz[.].*" "conformance[.]kernels_.*" "install[.]symbols"
  "multi[.](same_bits|ddp.*|fsdp.*|diloco|hogwild|data_parallel|tensor_parallel|tensor_queue)"
  "multi[.](mesh|meet|hierarchy|tree_reduce|distributed.*|sync_batch_norm)" "fault[.](ddp|messages)"
  "examples[.](lines|guide|hello_tensor|linear_fit|errors)" "cli[.](output|bad_input)"
  "cuda[.](device|unit_module|unit_step|conformance_kernels_(llama|copy))")
list(REMOVE_ITEM quick unit.schedule unit.message unit.pattern)
set_property(TEST ${quick} APPEND PROPERTY LABELS quick)

# --- what changes take turns with ----------------------------------------------------------------
# Each of these keeps a processor busy for over three seconds, in sum four times what all the
# others do. A change runs a sixth of them (script/test), and others of each subject; --full runs
# all. The most expensive first, so that the sixths take equally long. What equal bits rest on
# (FOLDER.same_bits) is not among them, and neither is install.packages: each change builds,
# installs and removes what users get.
set(turns
  cli.plan cli.elastic install.readme cuda.nccl cli.run_copies unit.products
  cli.recipes
  cli.amp cli.mesh cli.tune_plot cuda.saved multi.pipeline_replicas cli.signals cli.resume
  cli.watch interop.torchrun cli.watch_browser multi.context_parallel cli.run interop.local_sgd
  unit.pipeline install.languages multi.fsdp_parts cli.recheck cli.hostile cli.comforts
  cli.audit multi.pipeline install.reference conformance.collectives multi.shm_places
  mpi.joining cli.records cli.pipeline_ranks cli.base cli.watch_strange multi.group
  cli.real_data cuda.epilogues cli.tune_segments install.tools cli.weights
  mpi.suite cli.tune_postgres cuda.unit_gradcheck multi.ucx cli.bad_saves cli.numbers cli.faults
  fuzz.chat cuda.conformance_kernels_loss interop.numbers cuda.half multi.far
  fault.checkpoint_ranks cli.bench cli.compare_plot cli.hogwild cli.chaos
  cuda.conformance_kernels_linalg cli.run_elastic unit.pattern
  cuda.conformance_kernels_attention cli.diloco fault.checkpoint_kill interop.training
  examples.char_lstm cuda.mixed fault.disagree cli.lora cli.edits cli.tune_storage cli.run_etcd
  multi.cuda_groups interop.models multi.fsdp_offload cuda.conformance_kernels_matmul
  interop.pictures multi.data_parallel cuda.conformance_kernels_norm mpi.collectives
  multi.tables unit.crew cli.spikes multi.slices interop.donut cli.tensor_parallel
  cli.checkpoints cli.killed cli.old_kernel cli.chaos_flip unit.membership interop.ddp
  interop.tensor_parallel unit.classes fault.chaos gpu.script cuda.conformance_kernels_optim
  cuda.unit_linalg cli.auto cli.tune_tutorial cli.labelled unit.recompute fuzz.records
  conformance.kernels_optim examples.char_gpt conformance.kernels_plain examples.job
  cli.gguf_base interop.gguf_blocks
  unit.generate cli.images fault.elastic unit.study cuda.conformance_kernels_reduce
  conformance.kernels_matmul unit.math_compilers unit.tokens)
set(turn 0)
foreach(test IN LISTS turns)
  if(test IN_LIST tests)
    set_property(TEST ${test} APPEND PROPERTY LABELS turn_${turn})
  endif()
  math(EXPR turn "(${turn} + 1) % 6")
endforeach()

# --- what --full has alone -----------------------------------------------------------------------
# What runs other tests' code in other places or for longer. cli.run_raft waits for elections:
# minutes on a busy machine; cost.readers takes a minute to compile. Chaos strikes at random; the
# race checker's plug-in is every kernel once more; memory nodes, and machines under mpirun, are the
# same code elsewhere; strategies over a soft GPU per rank, and examples on it, are those of
# processors on the kernels of
# cuda.conformance_NAME. softgpu/CMakeLists.txt, whose tests are not seen here, labels
# softgpu.race_faults.
choir_choose(long "model[.].*" "cli[.](run_raft|chaos_elastic)" "softgpu[.]race_kernels_.*"
  "multi[.].*_numa" "mpi[.]machines" "cuda[.](shm_.*|examples_.*|bench|unit_recompute)"
  "unit[.](schedule|message)" "cost[.].*")
set_property(TEST ${long} APPEND PROPERTY LABELS long)
add_custom_target(full_tests) # what they need beside `all`
foreach(target IN ITEMS choir_cuda_race test_cost)
  if(TARGET ${target})
    add_dependencies(full_tests ${target})
  endif()
endforeach()
# Under a sanitizer: what it can find faults in that no other test there has run, and nothing that
# runs the same code with other numbers. sanitized_tests builds that.
if(CHOIR_SANITIZE)
  choir_choose(chosen "(unit|fault|fuzz|multi|conformance)[.].*" "interop[.]safetensors"
    "cli[.](output|bad_input|bad_saves|options|hostile|unlikely|documents|images|tokens)"
    "cli[.](tune|compare|predict|watch_strange)")
  choir_choose(same "multi[.](same_bits|pipeline.*|meet_file|cuda_groups|shm_places|.*_numa)"
    "multi[.](fsdp_parts|far)"
    "unit[.](schedule|message)" "fault[.]disagree" "conformance[.]collectives")
  list(REMOVE_ITEM chosen ${same})
  set(rest ${tests})
  list(REMOVE_ITEM rest ${chosen})
  set_property(TEST ${rest} APPEND PROPERTY LABELS long)
  # Each change builds and runs one eighth of them (script/test); the nightly run has all.
  add_custom_target(sanitized_tests)
  set(programs choir_command)
  foreach(plugin IN ITEMS ucx raft etcd parquet)
    if(TARGET choir_${plugin})
      list(APPEND programs choir_${plugin})
    endif()
  endforeach()
  foreach(part RANGE 7)
    add_custom_target(sanitized_tests_${part})
    add_dependencies(sanitized_tests_${part} ${programs})
    add_dependencies(sanitized_tests sanitized_tests_${part})
  endforeach()
  set(part 0)
  foreach(test IN LISTS chosen)
    set_property(TEST ${test} APPEND PROPERTY LABELS sanitized_${part})
    string(REPLACE "." "_" target ${test})
    # These two kinds run the programs of other tests.
    string(REGEX REPLACE "_onednn$" "" target ${target})
    string(REPLACE "interop_safetensors" "unit_safetensors" target ${target})
    foreach(program IN ITEMS test_${target} ${target})
      if(TARGET ${program})
        add_dependencies(sanitized_tests_${part} ${program})
      endif()
    endforeach()
    math(EXPR part "(${part} + 1) % 8")
  endforeach()
endif()
