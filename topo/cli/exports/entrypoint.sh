#!/bin/sh
# The entry of the image. Spark on Kubernetes calls it with "driver" or "executor", and says the rest
# by variables; everything else is a command of topo's.
set -eu

case "${1:-}" in
driver)
    shift
    exec tini -s -- spark-submit --deploy-mode client \
        --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" "$@"
    ;;
executor)
    # Spark's options of Java come as SPARK_JAVA_OPT_0, _1 and so on. The runtime of the image lacks
    # the module for vectors, which Spark asks for and does without.
    set --
    number=0
    while option=$(printenv "SPARK_JAVA_OPT_${number}"); do
        [ "${option}" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "${option}"
        number=$((number + 1))
    done
    java=$(python3 -c 'from topo.engine.spark.jvm.java import find_java; print(find_java().home)')
    jars=$(python3 -c 'import pyspark; print(pyspark.__path__[0] + "/jars/*")')
    exec tini -s -- "${java}/bin/java" "$@" \
        "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
        -cp "${SPARK_CLASSPATH:+${SPARK_CLASSPATH}:}${jars}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "${SPARK_DRIVER_URL}" \
        --executor-id "${SPARK_EXECUTOR_ID}" \
        --cores "${SPARK_EXECUTOR_CORES}" \
        --app-id "${SPARK_APPLICATION_ID}" \
        --hostname "${SPARK_EXECUTOR_POD_IP}" \
        --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
        --podName "${SPARK_EXECUTOR_POD_NAME}"
    ;;
*)
    exec tini -s -- topo "$@"
    ;;
esac
