// Runs the process, from reading the configuration to the end.

import ArgumentParser
import Foundation
import Logging
import PawlConfiguration
import ServiceLifecycle
import UnixSignals

/// Runs a gateway or a sidecar until it is stopped.
struct Running {
    let role: Role
    /// Reads the configuration, at the start and for each reload.
    let load: @Sendable () throws -> PawlConfiguration

    func run() async throws {
        CrashReports.keepMemoryOut()
        // A write beyond the limit of file sizes then fails, as on a full disk, and does not kill the process.
        signal(SIGXFSZ, SIG_IGN)
        let configuration: PawlConfiguration
        do {
            configuration = try load()
        } catch let error as ConfigurationError {
            Failures.write(error)
            throw ExitCode(ExitStatus.configuration)
        }
        LoggingSystem.bootstrap { label in
            var handler = StreamLogHandler.standardError(label: label)
            handler.logLevel = Logger.Level(rawValue: configuration.log.level.rawValue) ?? .info
            return handler
        }
        let logger = Logger(label: "pawl")
        let stop = StopSignal()
        let assembled: Assembly.Assembled
        do {
            assembled = try Assembly.assemble(
                configuration, as: role, logger: logger, reload: load, requestStop: { stop.send() })
        } catch {
            Failures.write(error, after: "pawl does not start: ")
            // A wrong mapping is a wrong configuration: starting again does not help.
            throw ExitCode(error is ConfigurationError ? ExitStatus.configuration : ExitStatus.failed)
        }
        for notice in assembled.notices { print(Printable.line(notice)) }
        let manager = ServiceManager()
        let service = GatewayService(assembled: assembled, manager: manager) { line in
            print(line)
            fflush(nil)
        }
        let group = ServiceGroup(
            configuration: .init(
                services: [
                    .init(service: service, successTerminationBehavior: .gracefullyShutdownGroup),
                    .init(
                        service: HangupService(gateway: assembled.gateway, manager: manager),
                        successTerminationBehavior: .ignore),
                    .init(service: stop, successTerminationBehavior: .gracefullyShutdownGroup),
                ], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        do {
            try await group.run()
        } catch {
            Failures.write(error, after: "pawl stopped: ")
            throw ExitCode(ExitStatus.failed)
        }
    }
}

/// Reads the configuration again on SIGHUP.
private struct HangupService: Service {
    let gateway: Gateway
    let manager: ServiceManager?

    func run() async throws {
        await withGracefulShutdownHandler {
            for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
                manager?.notify(.reloading)
                do {
                    _ = try gateway.reload(gateway.prepareReload())
                    manager?.notify(.ready(status: "Read its configuration again"))
                } catch {
                    gateway.logger.error(
                        "configuration not reloaded, the old one stays: \(Assembly.message(of: error))")
                    manager?.notify(.ready(status: "Serves with the configuration before: the new one was refused"))
                }
            }
        } onGracefulShutdown: {
        }
    }
}

/// Ends the service group when a command requests it (`pawl drain`).
private final class StopSignal: Service, Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: Void.self)

    func send() { continuation.finish() }

    func run() async throws {
        for await _ in stream.cancelOnGracefulShutdown() {}
    }
}

/// Limits what a crash report shows: keys are in memory, and others may read the log.
private enum CrashReports {
    /// Shows the functions on the stack, without registers and the memory that they point to.
    static let setting =
        "enable=yes,registers=none,threads=crashed,images=none,symbolicate=fast,interactive=no,color=no"

    /// Disables core dumps, and sets `SWIFT_BACKTRACE` to ``setting`` if it is not set.
    ///
    /// The Swift runtime reads the variable before any code of ours runs, so the program executes itself again. The
    /// process keeps its id.
    static func keepMemoryOut() {
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        guard getenv("SWIFT_BACKTRACE") == nil else { return }
        setenv("SWIFT_BACKTRACE", setting, 1)
        execv("/proc/self/exe", CommandLine.unsafeArgv)
        // If execv fails, reports are as the runtime makes them. The service file sets the variable itself.
    }
}
