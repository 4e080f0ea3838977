"""What clients ask before and beside everything else."""

from .wire import Routes, answer

routes = Routes()


@routes.on("GET", "/system/ping", session=False)
async def ping(call):
    return answer({
        "AndroidLatestVersion": "", "AndroidMinVersion": "", "IosLatestVersion": "", "IosMinVersion": "",
        "status": "OK",
    })


@routes.on("GET", "/config/client", session=False)
async def config(call):
    """Strings only, as the server has it. A few of its several hundred settings."""
    settings = {
        "BuildNumber": "standin", "CollapsedThreads": "always_on", "EnableCustomEmoji": "true",
        "EnableFileAttachments": "true", "EnableLinkPreviews": "true", "SiteURL": call.server.site_url,
        "Version": call.server.release,
    }
    if call.session:
        settings |= {
            "EnablePublicLink": "true" if call.server.has_public_links else "false", "FeatureFlagAppsEnabled": "false",
            "MaxFileSize": str(call.server.maximum_file_size), "MaxPostSize": str(call.server.maximum_message),
            "PostEditTimeLimit": "-1", "ScheduledPosts": "true",
        }
    return answer(dict(sorted(settings.items())))


@routes.on("GET", "/license/client", session=False)
async def license(call):
    return answer({"IsLicensed": "false"})
